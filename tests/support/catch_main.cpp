// SPDX-License-Identifier: Apache-2.0
//
// support/catch_main.cpp: the main of every test program, compiled once.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
