// SPDX-License-Identifier: Apache-2.0
//
// tests/golden/check.hpp: Catch2's CHECK. LibTorch has a macro of this name too, which knows nothing of Catch2 and ends the
// program at the first failure. Include this behind LibTorch's headers.
#pragma once

#include <ATen/core/ivalue.h>

#include <catch2/catch.hpp>

#undef CHECK
#define CHECK(...) INTERNAL_CATCH_TEST("CHECK", Catch::ResultDisposition::ContinueOnFailure, __VA_ARGS__)
