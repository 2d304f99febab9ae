# SPDX-License-Identifier: Apache-2.0
target_sources(ddhost_core PRIVATE monitor/monitor.cpp monitor/summary.cpp)
