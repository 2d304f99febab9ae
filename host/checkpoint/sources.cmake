# SPDX-License-Identifier: Apache-2.0
target_sources(ddhost_core PRIVATE checkpoint/export.cpp checkpoint/safetensors.cpp)
