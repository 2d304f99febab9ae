// SPDX-License-Identifier: Apache-2.0
//
// muon.cu: the kernels of muon.hpp, adam.hpp and newton_schulz_kernels.hpp, compiled to PTX.
#include "adam.hpp"
#include "muon.hpp"
#include "newton_schulz_kernels.hpp"

DDH_DEVICE_KERNEL(adam_decoupled, ddh::ElementKernel<adam::Formula<adam::Decay::decoupled>>)
DDH_DEVICE_KERNEL(muon_momentum, ddh::ShowKernel<muon::Momentum>)
DDH_DEVICE_KERNEL(muon_move, ddh::MoveKernel<muon::Move>)
DDH_DEVICE_KERNEL(muon_length_sums, newton_schulz::LengthSums)
DDH_DEVICE_KERNEL(muon_length_scale, newton_schulz::LengthScale)
DDH_DEVICE_KERNEL(muon_normalize, newton_schulz::Normalize)
DDH_DEVICE_KERNEL(muon_gram, newton_schulz::Gram)
DDH_DEVICE_KERNEL(muon_product, newton_schulz::Product)
DDH_DEVICE_KERNEL(muon_unpack, newton_schulz::Unpack)
