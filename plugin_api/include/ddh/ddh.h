/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/ddh.h: the whole plugin ABI. Start reading at ddh/abi.h, then the header of your plugin's kind. */
#ifndef DDH_DDH_H
#define DDH_DDH_H

#include "ddh/abi.h"
#include "ddh/kind/batch_view.h"
#include "ddh/kind/codec.h"
#include "ddh/kind/comm.h"
#include "ddh/kind/device.h"
#include "ddh/kind/format.h"
#include "ddh/kind/migrate.h"
#include "ddh/kind/model.h"
#include "ddh/kind/monitor.h"
#include "ddh/kind/optimizer.h"
#include "ddh/kind/schedule.h"
#include "ddh/kind/strategy.h"
#include "ddh/service/alloc.h"
#include "ddh/service/comm.h"
#include "ddh/service/config.h"
#include "ddh/service/copy.h"
#include "ddh/service/flatops.h"
#include "ddh/service/kernels.h"
#include "ddh/service/kv.h"
#include "ddh/service/log.h"
#include "ddh/service/metrics.h"
#include "ddh/service/optim.h"
#include "ddh/service/own_optim.h"
#include "ddh/service/params.h"
#include "ddh/service/stream.h"
#include "ddh/service/window.h"

#endif
