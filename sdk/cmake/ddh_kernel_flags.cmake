# SPDX-License-Identifier: Apache-2.0
#
# DDH_KERNEL_FLAGS: how numeric code is compiled, in this tree and in plugins of others. The loops are vectorized, and an
# element gets the same bits at every vector width (docs/numerics.md): no fused multiply-add, and never -ffast-math.
# For a target: target_compile_options(t PRIVATE ${DDH_KERNEL_FLAGS}).
# For one file: set_source_files_properties(f.cpp PROPERTIES COMPILE_OPTIONS "${DDH_KERNEL_FLAGS}").
set(DDH_KERNEL_FLAGS -ffp-contract=off -fno-math-errno -fno-trapping-math $<$<NOT:$<CONFIG:Debug>>:-O3>)
