/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/ddh.h: the whole plugin ABI. Start reading at ddh/abi.h, then the header of your plugin's kind. */
#ifndef DDH_DDH_H
#define DDH_DDH_H

#include "ddh/abi.h"
#include "ddh/host/alloc.h"
#include "ddh/host/comm.h"
#include "ddh/host/config.h"
#include "ddh/host/copy.h"
#include "ddh/host/flatops.h"
#include "ddh/host/kv.h"
#include "ddh/host/log.h"
#include "ddh/host/metrics.h"
#include "ddh/host/optim.h"
#include "ddh/host/params.h"
#include "ddh/host/stream.h"
#include "ddh/host/window.h"
#include "ddh/kind/comm.h"
#include "ddh/kind/device.h"
#include "ddh/kind/model.h"
#include "ddh/kind/optimizer.h"
#include "ddh/kind/strategy.h"

#endif
