# SPDX-License-Identifier: Apache-2.0
target_sources(ddhost_core PRIVATE data/loader.cpp data/sampler.cpp)
