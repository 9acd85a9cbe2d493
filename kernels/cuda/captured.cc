#include "kernels/cuda/captured.h"

#include <algorithm>
#include <array>
#include <complex>
#include <stdexcept>
#include <string>

namespace linalg::cuda {
namespace {

using PathOfCall = GpuPath (*)(const TracedCall&);

struct DtypePath {
  std::string_view dtype;
  PathOfCall path;
};

struct CapturedTarget {
  std::string_view name;
  std::array<DtypePath, 4> paths;
};

template <class Call>
constexpr std::array<DtypePath, 4> PathsOf() {
  return {{{"float32", &Call::template Path<float>},
           {"float64", &Call::template Path<double>},
           {"complex64", &Call::template Path<std::complex<float>>},
           {"complex128", &Call::template Path<std::complex<double>>}}};
}

#define LINALG_DESCRIBE_CAPTURED(name, call) {#name, PathsOf<call>()},
constexpr CapturedTarget kCapturedTargets[] = {LINALG_FOR_EACH_CAPTURED(LINALG_DESCRIBE_CAPTURED)};
#undef LINALG_DESCRIBE_CAPTURED

bool IsOneLaunch(GpuPath path) {
  return path == GpuPath::kThread || path == GpuPath::kWarp || path == GpuPath::kTeam;
}

}  // namespace

bool RunsWithoutScratch(std::string_view target, std::string_view dtype, const Shapes& operands,
                        const Shapes& results, bool shared) {
  const auto* const found = std::ranges::find(kCapturedTargets, target, &CapturedTarget::name);
  if (found == std::ranges::end(kCapturedTargets)) {
    throw std::invalid_argument(std::string(target) + " has no handler for recorded calls");
  }
  const auto path = std::ranges::find(found->paths, dtype, &DtypePath::dtype);
  if (path == found->paths.end()) return false;
  return IsOneLaunch(path->path({.operands = operands, .results = results, .shared = shared}));
}

}  // namespace linalg::cuda
