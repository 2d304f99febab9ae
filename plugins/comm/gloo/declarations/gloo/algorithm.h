// SPDX-License-Identifier: Apache-2.0
//
// LibTorch carries Gloo but not its headers. The headers in this folder declare what LibTorch's ProcessGroupGloo.hpp names of
// it: classes that are used through pointers alone. Nothing here is compiled into code of its own.
#pragma once
