// SPDX-License-Identifier: Apache-2.0
#include "depthwise_kernels.hpp"

#include <algorithm>

#include "ddh/sdk/kernels/lowp.hpp"

namespace ops {
namespace {

// N channels side by side.
template <int N>
struct Lanes;
template <>
struct Lanes<16> {
  using Type = float __attribute__((vector_size(64), aligned(4), may_alias));
};
template <>
struct Lanes<4> {
  using Type = float __attribute__((vector_size(16), aligned(4), may_alias));
};
template <>
struct Lanes<1> {
  using Type = float;
};
template <int N>
using Floats = typename Lanes<N>::Type;

template <int N>
DDH_SIMD_INLINE void load(const float* p, Floats<N>& to) {
  to = *reinterpret_cast<const Floats<N>*>(p);
}
template <int N>
DDH_SIMD_INLINE void store(float* p, const Floats<N>& from) {
  *reinterpret_cast<Floats<N>*>(p) = from;
}
// bf16, as ddh::Bf16 has it.
template <int N>
DDH_SIMD_INLINE void load(const uint16_t* p, Floats<N>& to) {
  auto* const values = reinterpret_cast<float*>(&to);
  DDH_SIMD_LOOP
  for (int i = 0; i < N; ++i) values[i] = ddh::Bf16::to_f32(p[i]);
}
template <int N>
DDH_SIMD_INLINE void store(uint16_t* p, const Floats<N>& from) {
  const auto* const values = reinterpret_cast<const float*>(&from);
  DDH_SIMD_LOOP
  for (int i = 0; i < N; ++i) p[i] = ddh::Bf16::from_f32(values[i]);
}

// The taps first .. end - 1 of a row or column of the filter that meet a pixel of the input, from `begin` on.
struct Taps {
  int64_t begin, first, end;
};
DDH_SIMD_INLINE Taps taps_at(int64_t out, int64_t size, const DepthwiseShape& s) {
  const int64_t begin = out * s.stride - s.padding;
  return {begin, begin < 0 ? -begin : 0, s.kernel < size - begin ? s.kernel : size - begin};
}

// The taps of a row or column through which a pixel of the input reached the results: tap, tap + stride, ... < end, with
// results out, out - 1, ...
struct Results {
  int64_t tap, end, out;
};
DDH_SIMD_INLINE Results results_at(int64_t in, int64_t out_size, const DepthwiseShape& s) {
  const int64_t place = in + s.padding, last = place / s.stride;
  const int64_t beyond = last < out_size ? 0 : last - out_size + 1;  // results that do not exist
  const int64_t end = s.kernel < place + 1 ? s.kernel : place + 1;
  return {place % s.stride + beyond * s.stride, end, last - beyond};
}

DDH_SIMD_INLINE int64_t of_input(const DepthwiseShape& s, int64_t n) { return n * s.height * s.width * s.channels; }
DDH_SIMD_INLINE int64_t of_result(const DepthwiseShape& s, int64_t n) {
  return n * s.out_height * s.out_width * s.channels;
}

// Each Step computes N channels, from c on, of sample n.
struct Forward {
  template <int N, class Element>
  DDH_SIMD_BODY void run(const DepthwiseShape& s, int64_t n, int64_t c, const Element* x, const float* w, Element* y) {
    const int64_t C = s.channels;
    x += of_input(s, n) + c, w += c, y += of_result(s, n) + c;
    for (int64_t oh = 0; oh < s.out_height; ++oh) {
      const Taps rows = taps_at(oh, s.height, s);
      for (int64_t ow = 0; ow < s.out_width; ++ow, y += C) {
        const Taps columns = taps_at(ow, s.width, s);
        Floats<N> sum{}, pixel, weight;
        for (int64_t kh = rows.first; kh < rows.end; ++kh) {
          const Element* const from = x + ((rows.begin + kh) * s.width + columns.begin) * C;
          const float* const of = w + kh * s.kernel * C;
          for (int64_t kw = columns.first; kw < columns.end; ++kw) {
            load<N>(from + kw * C, pixel);
            load<N>(of + kw * C, weight);
            sum += pixel * weight;
          }
        }
        store<N>(y, sum);
      }
    }
  }
};

struct BackwardInput {
  template <int N, class Element>
  DDH_SIMD_BODY void run(const DepthwiseShape& s, int64_t n, int64_t c, const Element* dy, const float* w,
                         Element* dx) {
    const int64_t C = s.channels;
    dy += of_result(s, n) + c, w += c, dx += of_input(s, n) + c;
    for (int64_t ih = 0; ih < s.height; ++ih) {
      const Results rows = results_at(ih, s.out_height, s);
      for (int64_t iw = 0; iw < s.width; ++iw, dx += C) {
        const Results columns = results_at(iw, s.out_width, s);
        Floats<N> sum{}, gradient, weight;
        int64_t oh = rows.out;
        for (int64_t kh = rows.tap; kh < rows.end; kh += s.stride, --oh) {
          int64_t ow = columns.out;
          for (int64_t kw = columns.tap; kw < columns.end; kw += s.stride, --ow) {
            load<N>(dy + (oh * s.out_width + ow) * C, gradient);
            load<N>(w + (kh * s.kernel + kw) * C, weight);
            sum += gradient * weight;
          }
        }
        store<N>(dx, sum);
      }
    }
  }
};

// Adds the sums of the sample to dw.
struct BackwardWeight {
  template <int N, class Element>
  DDH_SIMD_BODY void run(const DepthwiseShape& s, int64_t n, int64_t c, const Element* x, const Element* dy,
                         float* dw) {
    const int64_t C = s.channels;
    x += of_input(s, n) + c, dy += of_result(s, n) + c, dw += c;
    Floats<N> sums[kMostTaps] = {}, gradient, pixel;
    for (int64_t oh = 0; oh < s.out_height; ++oh) {
      const Taps rows = taps_at(oh, s.height, s);
      for (int64_t ow = 0; ow < s.out_width; ++ow, dy += C) {
        const Taps columns = taps_at(ow, s.width, s);
        load<N>(dy, gradient);
        for (int64_t kh = rows.first; kh < rows.end; ++kh) {
          const Element* const from = x + ((rows.begin + kh) * s.width + columns.begin) * C;
          Floats<N>* const of = sums + kh * s.kernel;
          for (int64_t kw = columns.first; kw < columns.end; ++kw) {
            load<N>(from + kw * C, pixel);
            of[kw] += gradient * pixel;
          }
        }
      }
    }
    for (int64_t k = 0; k < s.taps(); ++k) {
      Floats<N> sum;
      load<N>(dw + k * C, sum);
      store<N>(dw + k * C, sum + sums[k]);
    }
  }
};

// All samples and channels.
template <class Step, class A, class B, class C>
struct ForChannels {
  DDH_SIMD_BODY void run(const DepthwiseShape& shape, const A* a, const B* b, C* c) {
    const DepthwiseShape s = shape;
    for (int64_t n = 0; n < s.samples; ++n) {
      int64_t first = 0;
      for (; first + 16 <= s.channels; first += 16) Step::template run<16>(s, n, first, a, b, c);
      for (; first + 4 <= s.channels; first += 4) Step::template run<4>(s, n, first, a, b, c);
      for (; first < s.channels; ++first) Step::template run<1>(s, n, first, a, b, c);
    }
  }
};

}  // namespace

template <class Element>
void depthwise(const DepthwiseShape& s, const Element* x, const float* w, Element* y) {
  ddh::Kernel<ForChannels<Forward, Element, float, Element>>::run(s, x, w, y);
}

template <class Element>
void depthwise_backward_input(const DepthwiseShape& s, const Element* dy, const float* w, Element* dx) {
  ddh::Kernel<ForChannels<BackwardInput, Element, float, Element>>::run(s, dy, w, dx);
}

template <class Element>
void depthwise_backward_weight(const DepthwiseShape& s, const Element* x, const Element* dy, float* dw) {
  std::fill_n(dw, s.taps() * s.channels, 0.0F);
  ddh::Kernel<ForChannels<BackwardWeight, Element, Element, float>>::run(s, x, dy, dw);
}

// fp32, and bf16 as its bits.
template void depthwise(const DepthwiseShape&, const float*, const float*, float*);
template void depthwise(const DepthwiseShape&, const uint16_t*, const float*, uint16_t*);
template void depthwise_backward_input(const DepthwiseShape&, const float*, const float*, float*);
template void depthwise_backward_input(const DepthwiseShape&, const uint16_t*, const float*, uint16_t*);
template void depthwise_backward_weight(const DepthwiseShape&, const float*, const float*, float*);
template void depthwise_backward_weight(const DepthwiseShape&, const uint16_t*, const uint16_t*, float*);

}  // namespace ops
