// Checks the arithmetic of kernels/arithmetic on the architecture that this is compiled for. The
// disassembly of the functions whose names begin with Fused is read by a test. The program prints
// the bits of results. They are the same on every architecture that fuses multiply and add. Any
// argument makes it first read beyond its memory.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>

#include "kernels/arithmetic/element.h"
#include "kernels/cpu/batch.h"
#include "kernels/small/cholesky.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace {

using linalg::Complex;
using linalg::Lane;
using linalg::RealElement;
using linalg::Vector;

#define LINALG_FUSED(name, V) \
  extern "C" void Fused##name(const V* a, const V* b, V* c) { *c = linalg::MulAdd(*a, *b, *c); }
LINALG_FUSED(Float, float)
LINALG_FUSED(Double, double)
using Float4 = Vector<float, 4>;
using Double2 = Vector<double, 2>;
using Double4 = Vector<double, 4>;
LINALG_FUSED(Float4, Float4)
LINALG_FUSED(Double2, Double2)
LINALG_FUSED(Double4, Double4)

constexpr int kMostN = 9;

// Numbers in (-1, 1), the same on every machine.
class Random {
 public:
  double operator()() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(static_cast<int64_t>(state_) >> 20) / (int64_t{1} << 43);
  }

 private:
  uint64_t state_ = 1;
};

template <class E>
void SetLane(E* x, int lane, double re, double im) {
  using V = RealElement<E>;
  using R = Lane<V>;
  const R parts[] = {static_cast<R>(re), static_cast<R>(im)};
  for (size_t part = 0; part < sizeof(E) / sizeof(V); ++part)
    std::memcpy(reinterpret_cast<R*>(x) + part * linalg::kLanesOf<V> + lane, parts + part,
                sizeof(R));
}

void Print(const void* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) std::printf("%02x", static_cast<const uint8_t*>(data)[i]);
  std::printf("\n");
}

// Factors a diagonally dominant matrix in each lane.
template <class E>
void PrintCholesky(const char* name) {
  std::printf("%s\n", name);
  Random random;
  for (int n = 1; n <= kMostN; ++n) {
    E a[kMostN * kMostN] = {};
    for (int lane = 0; lane < linalg::kLanesOf<RealElement<E>>; ++lane) {
      for (int i = 0; i < n; ++i) {
        for (int j = 0; j < i; ++j) {
          const double re = random(), im = random();
          SetLane(a + i * n + j, lane, re, im);
        }
        SetLane(a + i * n + i, lane, 2 * n + random(), 0);
      }
    }
    const auto failed = linalg::small::Cholesky(a, n);
    Print(&failed, sizeof(failed));
    Print(a, n * n * sizeof(E));
  }
}

#if defined(__x86_64__)
void SetFlushToZero() { _mm_setcsr(_mm_getcsr() | 0x8040); }
#elif defined(__aarch64__)
void SetFlushToZero() {
  uint64_t state;
  __asm__ volatile("mrs %0, fpcr" : "=r"(state));
  __asm__ volatile("msr fpcr, %0" : : "r"(state | 1 << 24) : "memory");
}
#endif

bool HasSubnormalNumbers() {
  volatile float least = std::numeric_limits<float>::min();
  volatile float half = least * 0.5f;
  return half != 0;
}

}  // namespace

int main(int count, char**) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("x86-64-v3")) return 77;
#endif
  if (count > 1) {  // one element short, for a sanitizer to see
    const auto a = std::make_unique<float[]>(3);
    linalg::small::Cholesky(a.get(), 2);
  }
  PrintCholesky<float>("float");
  PrintCholesky<double>("double");
  PrintCholesky<Float4>("Float4");
  PrintCholesky<Double2>("Double2");
  PrintCholesky<Complex<Float4>>("Complex<Float4>");
  SetFlushToZero();
  std::printf("before: %d", HasSubnormalNumbers());
  {
    const linalg::SubnormalNumbers subnormal_numbers;
    std::printf(", within: %d", HasSubnormalNumbers());
  }
  std::printf(", after: %d\n", HasSubnormalNumbers());
}
