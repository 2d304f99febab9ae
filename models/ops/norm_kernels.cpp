// SPDX-License-Identifier: Apache-2.0
#include "norm_kernels.hpp"

#include <algorithm>
#include <array>

#include "elements.hpp"
#include "exponential.hpp"

namespace ops {
namespace {

constexpr int64_t kRun = 64;      // rows whose sums stay in fp32
constexpr int64_t kColumns = 64;  // whose sums stay in registers

using Sums = std::array<float, kColumns>;

template <Activation kKind>
struct Activated {
  DDH_SIMD_BODY float value(float a) {
    // NaN stays NaN.
    if constexpr (kKind == Activation::kRelu) return a < 0 ? 0.0F : a;
    if constexpr (kKind == Activation::kRelu6) return a < 0 ? 0.0F : a > 6 ? 6.0F : a;
    if constexpr (kKind == Activation::kHardSwish) return a * Activated<Activation::kRelu6>::value(a + 3) * (1.0F / 6);
    if constexpr (kKind == Activation::kSilu) return a * logistic(a);
    return a;
  }
  DDH_SIMD_BODY float slope(float a) {
    if constexpr (kKind == Activation::kRelu) return a > 0 ? 1.0F : 0.0F;
    if constexpr (kKind == Activation::kRelu6) return a > 0 && a < 6 ? 1.0F : 0.0F;
    if constexpr (kKind == Activation::kHardSwish) return a < -3 ? 0.0F : a > 3 ? 1.0F : a * (1.0F / 3) + 0.5F;
    if constexpr (kKind == Activation::kSilu) {
      const float s = logistic(a);
      return s * (1 + a * (1 - s));
    }
    return 1;
  }
};

// Sums of distances from the mean of a run of rows, and of their squares; `columns`: at most kColumns.
template <class Element>
struct RunStatistics {
  DDH_SIMD_BODY void run(const Element* x, int64_t rows, int64_t channels, int64_t columns, float* mean,
                         float* squares) {
    Sums sums{};
    for (int64_t r = 0; r < rows; ++r) {
      DDH_SIMD_LOOP
      for (int64_t c = 0; c < columns; ++c) sums[static_cast<size_t>(c)] += widened(x[r * channels + c]);
    }
    const float n = static_cast<float>(rows);
    for (int64_t c = 0; c < columns; ++c) mean[c] = sums[static_cast<size_t>(c)] / n;
    sums = {};
    for (int64_t r = 0; r < rows; ++r) {
      DDH_SIMD_LOOP
      for (int64_t c = 0; c < columns; ++c) {
        const float away = widened(x[r * channels + c]) - mean[c];
        sums[static_cast<size_t>(c)] += away * away;
      }
    }
    for (int64_t c = 0; c < columns; ++c) squares[c] = sums[static_cast<size_t>(c)];
  }
};

template <class Element, Activation kKind>
struct Normalize {
  DDH_SIMD_BODY void run(const Element* x, Element* y, int64_t rows, int64_t channels, const ChannelScalars& of) {
    const ChannelScalars s = of;
    for (int64_t r = 0; r < rows; ++r, x += channels, y += channels) {
      DDH_SIMD_LOOP
      for (int64_t c = 0; c < channels; ++c)
        store(y + c, Activated<kKind>::value((widened(x[c]) - s.mean[c]) * s.scale[c] + s.shift[c]));
    }
  }
};

template <class Element, Activation kKind>
struct BackwardSums {
  DDH_SIMD_BODY void run(const Element* x, const Element* dy, int64_t rows, int64_t channels, int64_t columns,
                         const ChannelScalars& of, float* sums_out, float* products_out) {
    const ChannelScalars s = of;
    Sums sums{}, products{};
    for (int64_t r = 0; r < rows; ++r, x += channels, dy += channels) {
      DDH_SIMD_LOOP
      for (int64_t c = 0; c < columns; ++c) {
        const float away = widened(x[c]) - s.mean[c];
        const float g = widened(dy[c]) * Activated<kKind>::slope(away * s.scale[c] + s.shift[c]);
        sums[static_cast<size_t>(c)] += g;
        products[static_cast<size_t>(c)] += g * away;
      }
    }
    for (int64_t c = 0; c < columns; ++c) {
      sums_out[c] = sums[static_cast<size_t>(c)];
      products_out[c] = products[static_cast<size_t>(c)];
    }
  }
};

template <class Element, Activation kKind>
struct Backward {
  DDH_SIMD_BODY void run(const Element* x, const Element* dy, Element* dx, int64_t rows, int64_t channels,
                         const ChannelScalars& of, const float* mean_g, const float* slope) {
    const ChannelScalars s = of;
    for (int64_t r = 0; r < rows; ++r, x += channels, dy += channels, dx += channels) {
      DDH_SIMD_LOOP
      for (int64_t c = 0; c < channels; ++c) {
        const float away = widened(x[c]) - s.mean[c];
        const float g = widened(dy[c]) * Activated<kKind>::slope(away * s.scale[c] + s.shift[c]);
        store(dx + c, (g - mean_g[c] - away * slope[c]) * s.scale[c]);
      }
    }
  }
};

// Calls body.operator()<kind>() with the activation as a constant.
template <class Body>
void with_activation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::kNone:
      return body.template operator()<Activation::kNone>();
    case Activation::kRelu:
      return body.template operator()<Activation::kRelu>();
    case Activation::kRelu6:
      return body.template operator()<Activation::kRelu6>();
    case Activation::kHardSwish:
      return body.template operator()<Activation::kHardSwish>();
    case Activation::kSilu:
      return body.template operator()<Activation::kSilu>();
  }
}

// Calls body(first row, rows, first column, columns) for each run of rows, and for its columns.
template <class Body>
void for_runs(int64_t rows, int64_t channels, const Body& body) {
  for (int64_t r = 0; r < rows; r += kRun) {
    for (int64_t c = 0; c < channels; c += kColumns)
      body(r, std::min(kRun, rows - r), c, std::min(kColumns, channels - c));
  }
}

}  // namespace

// Runs are joined as by Chan et al. 1979.
template <class Element>
void channel_statistics(const Element* x, int64_t rows, int64_t channels, double* mean, double* squares) {
  std::fill_n(mean, channels, 0.0);
  std::fill_n(squares, channels, 0.0);
  for_runs(rows, channels, [&](int64_t row, int64_t n, int64_t first, int64_t columns) {
    Sums of_run{}, distances{};
    ddh::Kernel<RunStatistics<Element>>::run(x + row * channels + first, n, channels, columns, of_run.data(),
                                             distances.data());
    const auto before = static_cast<double>(row), own = static_cast<double>(n), all = before + own;
    for (int64_t c = 0; c < columns; ++c) {
      const double away = static_cast<double>(of_run[static_cast<size_t>(c)]) - mean[first + c];
      mean[first + c] += away * (own / all);
      squares[first + c] += static_cast<double>(distances[static_cast<size_t>(c)]) + away * away * (before * own / all);
    }
  });
}

template <class Element>
void normalize(const Element* x, Element* y, int64_t rows, int64_t channels, const ChannelScalars& of,
               Activation activation) {
  with_activation(activation,
                  [&]<Activation kKind>() { ddh::Kernel<Normalize<Element, kKind>>::run(x, y, rows, channels, of); });
}

template <class Element>
void normalize_backward_sums(const Element* x, const Element* dy, int64_t rows, int64_t channels,
                             const ChannelScalars& of, Activation activation, double* sums, double* products) {
  std::fill_n(sums, channels, 0.0);
  std::fill_n(products, channels, 0.0);
  with_activation(activation, [&]<Activation kKind>() {
    for_runs(rows, channels, [&](int64_t row, int64_t n, int64_t first, int64_t columns) {
      Sums of_run{}, with_x{};
      const int64_t at = row * channels + first;
      ddh::Kernel<BackwardSums<Element, kKind>>::run(x + at, dy + at, n, channels, columns,
                                                     {of.mean + first, of.scale + first, of.shift + first},
                                                     of_run.data(), with_x.data());
      for (int64_t c = 0; c < columns; ++c) {
        sums[first + c] += static_cast<double>(of_run[static_cast<size_t>(c)]);
        products[first + c] += static_cast<double>(with_x[static_cast<size_t>(c)]);
      }
    });
  });
}

template <class Element>
void normalize_backward(const Element* x, const Element* dy, Element* dx, int64_t rows, int64_t channels,
                        const ChannelScalars& of, Activation activation, const float* mean_g, const float* slope) {
  with_activation(activation, [&]<Activation kKind>() {
    ddh::Kernel<Backward<Element, kKind>>::run(x, dy, dx, rows, channels, of, mean_g, slope);
  });
}

// Rows of fp32, and of bf16 as their bits.
template void channel_statistics(const float*, int64_t, int64_t, double*, double*);
template void channel_statistics(const uint16_t*, int64_t, int64_t, double*, double*);
template void normalize(const float*, float*, int64_t, int64_t, const ChannelScalars&, Activation);
template void normalize(const uint16_t*, uint16_t*, int64_t, int64_t, const ChannelScalars&, Activation);
template void normalize_backward_sums(const float*, const float*, int64_t, int64_t, const ChannelScalars&, Activation,
                                      double*, double*);
template void normalize_backward_sums(const uint16_t*, const uint16_t*, int64_t, int64_t, const ChannelScalars&,
                                      Activation, double*, double*);
template void normalize_backward(const float*, const float*, float*, int64_t, int64_t, const ChannelScalars&,
                                 Activation, const float*, const float*);
template void normalize_backward(const uint16_t*, const uint16_t*, uint16_t*, int64_t, int64_t, const ChannelScalars&,
                                 Activation, const float*, const float*);

}  // namespace ops
