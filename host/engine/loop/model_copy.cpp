// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/model_copy.hpp"

#include "ddh/sdk/plugin.hpp"

namespace ddhost {

template <class T>
ModelCopy::List<T>::List(const T* const* given, uint32_t n, const char* what) {
  if (n > 0 && given == nullptr)
    ddh::fail(DDH_INVALID_ARGUMENT, "the model describes ", n, ' ', what,
              "s but gives no array of them; fix the model");
  copies.reserve(n);
  for (uint32_t i = 0; i < n; ++i) {
    try {
      copies.push_back(ddh::copy_of(given[i]));
    } catch (const ddh::Error& error) {
      ddh::fail(error.code(), what, ' ', i, " of the model: ", error.what());
    }
  }
  for (const T& copy : copies) pointers.push_back(&copy);
}

ModelCopy::ModelCopy(const ddh_model_desc* given) : desc_{ddh::copy_of(given)} {
  ddh_model_desc& mine = desc_.front();
  params_ = List<ddh_param_desc>(mine.params, mine.n_params, "parameter");
  units_ = List<ddh_unit_desc>(mine.units, mine.n_units, "unit");
  buffers_ = List<ddh_buffer_desc>(mine.buffers, mine.n_buffers, "buffer");
  programs_ = List<ddh_program_desc>(mine.programs, mine.n_programs, "program");
  mine.params = params_.pointers.data();
  mine.units = units_.pointers.data();
  mine.buffers = buffers_.pointers.data();
  mine.programs = programs_.pointers.data();
}

}  // namespace ddhost
