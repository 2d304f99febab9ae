# SPDX-License-Identifier: Apache-2.0
target_sources(
  ddhost_core
  PRIVATE run/check_model.cpp
          run/check_world.cpp
          run/engine.cpp
          run/evaluate.cpp
          run/lr_schedule.cpp
          run/rank.cpp
          run/rank_log.cpp
          run/train_loop.cpp)
