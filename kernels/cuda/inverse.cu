// Inverses and determinants from LU factors.
//
// In shared memory where the matrix fits: one per thread, or one per team. Beyond, the vendor's LU,
// and for inverses cuBLAS's trsm on the permuted identity. The inverse of an exactly singular
// matrix is NaN. A determinant is a product kept apart from its exponent, so that it overflows only
// if the result does.
#include "kernels/cuda/batch.h"
#include "kernels/cuda/lu.h"
#include "kernels/cuda/triangular.h"
#include "kernels/handlers.h"
#include "kernels/small/lu.h"
#include "kernels/team/lu.h"
#include "kernels/team/triangular.h"

namespace linalg::cuda {
namespace {

template <class E>
struct SmallInverse {
  using V = small::RealElement<E>;
  int n;
  const E* a;
  E* inverse;
  int32_t* info_out;
  Staged matrix, result, info;
  int spare;

  __device__ void Load(int64_t first, int count, char* memory, int64_t bytes) const {
    matrix.Load(a, first, count, memory, bytes);
  }
  __device__ void Run(char* slice) const {
    E* const factors = At<E>(slice, matrix.offset);
    E* const target = At<E>(slice, result.offset);
    V* const pivots = At<V>(slice, spare);
    const V singular = small::Lu(n, n, factors, pivots, pivots + n);
    small::Invert(n, factors, pivots + n, target);
    small::FillNaN(singular != V(0), n * n, target);
    *At<V>(slice, info.offset) = singular;
  }
  __device__ void Store(int64_t first, int count, char* memory, int64_t bytes) const {
    result.Store(inverse, first, count, memory, bytes);
    info.StoreIntegers<V>(info_out, first, count, memory, bytes);
  }
};

template <class E>
struct TeamInverse {
  static constexpr int kMostThreads = kBlockThreads;
  int n, ld;
  const E* a;
  E* inverse;
  int32_t* info_out;
  int result, pivots, permutation;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    using V = small::RealElement<E>;
    E* const factors = At<E>(slice, 0);
    E* const target = At<E>(slice, result);
    int32_t* const order = At<int32_t>(slice, permutation);
    LoadMatrix(team, a + i * n * n, n, n, factors, ld);
    const int info = team::Lu(team, n, n, factors, ld, At<int32_t>(slice, pivots), order);
    const team::Grid grid = team::RowGrid(team);
    team.Phase([&](int thread) {
      team::ForEachElement(grid, thread, 0, n, 0, n, [&](int row, int col) {
        target[row * ld + col] = small::FromReal<E>(V(order[row] == col));
      });
    });
    team::Substitute(team, n, factors, ld, true, true, n, target, ld);
    team::Substitute(team, n, factors, ld, false, false, n, target, ld);
    StoreMatrix(team, n, n, inverse + i * n * n,
                [&](int row, int col) { return info != 0 ? NaN<E>() : target[row * ld + col]; });
    team.Phase([&](int thread) {
      if (thread == 0) info_out[i] = info;
    });
  }
};

template <class T>
LuProblem<T> MakeProblem(Scratch& scratch, int64_t batch, int64_t n, const T* a, int32_t* info) {
  return {batch,
          n,
          n,
          a,
          scratch.Take<T>(batch * n * n),
          scratch.Take<int32_t>(batch * n),
          scratch.Take<int32_t>(batch * n),
          info};
}

template <class T>
void Invert(cudaStream_t stream, Scratch& scratch, int64_t batch, int64_t n, const T* a, T* inverse,
            int32_t* info) {
  using E = Element<T>;
  const int64_t size = n * n;
  Slice slice(sizeof(Real<T>));
  if (2 * size * static_cast<int64_t>(sizeof(T)) <= kAloneBytes) {
    const Staged matrix(size, size, slice.Take<E>(size));
    const Staged result(size, size, slice.Take<E>(size));
    const int spare = slice.Take<Real<T>>(2 * n);
    const Staged singular(1, 1, slice.Take<Real<T>>(1));
    const SmallInverse<E> job{ToInt(n), AsElements(a), AsElements(inverse), info, matrix, result,
                              singular, spare};
    return LaunchAlone(stream, job, batch, slice);
  }
  if (n <= kTeamLu) {
    const int ld = ToInt(n | 1);
    slice.Take<E>(n * ld);
    const int result = slice.Take<E>(n * ld), pivots = slice.Take<int32_t>(n),
              order = slice.Take<int32_t>(n);
    if (slice.bytes() <= SharedBytes()) {
      const TeamInverse<E> job{ToInt(n), ld,     AsElements(a), AsElements(inverse),
                               info,     result, pivots,        order};
      return LaunchTeams(stream, job, batch, TeamSize(n), slice);
    }
  }
  const LuProblem<T> problem = MakeProblem(scratch, batch, n, a, info);
  VendorLu(stream, scratch, problem);
  T* const identity = scratch.Take<T>(batch * size);
  ForEach(stream, batch * size, WriteIdentity<E>{n, AsElements(identity)});
  Substitute(stream, scratch,
             Substitution{.with = Substitution::With::kLu,
                          .pivots = problem.pivots,
                          .pivots_stride = n,
                          .column_major = true},
             Systems<T>{problem.packed, identity, inverse, batch, n, n, n, size});
  ForEach(stream, batch * size, FillFailed<E>{AsElements(inverse), size, info});
}

// Where a determinant goes: as one number, or as its sign and the logarithm of its magnitude.
template <class E>
struct DeterminantResults {
  using V = small::RealElement<E>;
  E* det;
  E* sign;
  V* logarithm;

  __device__ void Write(int64_t i, small::ScaledProduct<E> product) const {
    if (det != nullptr) {
      StoreGlobal<E>(product.Value(), det + i);
    } else {
      product.Normalise();
      StoreGlobal<E>(product.Sign(), sign + i);
      logarithm[i] = product.LogarithmOfMagnitude();
    }
  }
};

template <class E>
struct SmallDeterminant {
  using V = small::RealElement<E>;
  int n;
  const E* a;
  DeterminantResults<E> results;
  Staged matrix;
  int spare, result;

  __device__ void Load(int64_t first, int count, char* memory, int64_t bytes) const {
    matrix.Load(a, first, count, memory, bytes);
  }
  __device__ void Run(char* slice) const {
    V* const pivots = At<V>(slice, spare);
    const auto product = small::Determinant(n, At<E>(slice, matrix.offset), pivots, pivots + n);
    *At<E>(slice, result) = product.product;
    At<V>(slice, spare)[0] = product.exponent;
  }
  __device__ void Store(int64_t first, int count, char* memory, int64_t bytes) const {
    if (static_cast<int>(threadIdx.x) >= count) return;
    char* const slice = memory + threadIdx.x * bytes;
    small::ScaledProduct<E> product;
    product.product = *At<E>(slice, result);
    product.exponent = At<V>(slice, spare)[0];
    results.Write(first + threadIdx.x, product);
  }
};

template <class E>
struct TeamDeterminant {
  static constexpr int kMostThreads = kBlockThreads;
  int n, ld;
  const E* a;
  DeterminantResults<E> results;
  int pivots, permutation;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    E* const factors = At<E>(slice, 0);
    int32_t* const steps = At<int32_t>(slice, pivots);
    LoadMatrix(team, a + i * n * n, n, n, factors, ld);
    team::Lu(team, n, n, factors, ld, steps, At<int32_t>(slice, permutation));
    team.Phase([&](int thread) {
      if (thread == 0) results.Write(i, team::Determinant(n, factors, ld, steps));
    });
  }
};

template <class E>
struct DeterminantOfFactors {
  int n;
  const E* factors;
  const int32_t* pivots;
  DeterminantResults<E> results;

  __device__ void operator()(int64_t i) const {
    const int64_t size = static_cast<int64_t>(n) * n;
    results.Write(i, team::Determinant(n, factors + i * size, n, pivots + i * n));
  }
};

template <class T>
void Determinants(cudaStream_t stream, ffi::ScratchAllocator& allocator, const BatchShape& shape,
                  const ffi::AnyBuffer& a, const DeterminantResults<Element<T>>& results) {
  using E = Element<T>;
  const int64_t batch = shape.batch, n = shape.rows, size = n * n;
  const T* const a_data = Elements<T>(a, batch * size, "a");
  if (batch == 0) return;
  Slice slice(sizeof(Real<T>));
  if (size * static_cast<int64_t>(sizeof(T)) <= kAloneBytes) {
    const Staged matrix(size, size, slice.Take<E>(size));
    const int spare = slice.Take<Real<T>>(2 * n + 1), result = slice.Take<E>(1);
    const SmallDeterminant<E> job{ToInt(n), AsElements(a_data), results, matrix, spare, result};
    return LaunchAlone(stream, job, batch, slice);
  }
  if (n <= kTeamLu) {
    const int ld = ToInt(n | 1);
    slice.Take<E>(n * ld);
    const int pivots = slice.Take<int32_t>(n), order = slice.Take<int32_t>(n);
    const TeamDeterminant<E> job{ToInt(n), ld, AsElements(a_data), results, pivots, order};
    return LaunchTeams(stream, job, batch, TeamSize(n), slice);
  }
  Scratch scratch(allocator);
  const auto problem = MakeProblem(scratch, batch, n, a_data, scratch.Take<int32_t>(batch));
  VendorLu(stream, scratch, problem);
  const E* const factors = AsElements(static_cast<const T*>(problem.packed));
  ForEach(stream, batch, DeterminantOfFactors<E>{ToInt(n), factors, problem.pivots, results});
}

ffi::Error Inv(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
               ffi::Result<ffi::AnyBuffer> inverse, ffi::Result<ffi::AnyBuffer> info) {
  return Guard("linalg_inv", [&] {
    Scratch scratch(allocator);
    const BatchShape shape = SplitSquareBatch(a, "a");
    const int64_t batch = shape.batch, size = shape.size();
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      const T* const a_data = Elements<T>(a, batch * size, "a");
      T* const inverse_data = Elements<T>(inverse, batch * size, "the inverse");
      int32_t* const info_data = Elements<int32_t>(info, batch, "info");
      if (batch == 0) return;
      Invert(stream, scratch, batch, shape.rows, a_data, inverse_data, info_data);
    });
  });
}

ffi::Error Det(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
               ffi::Result<ffi::AnyBuffer> det) {
  return Guard("linalg_det", [&] {
    const BatchShape shape = SplitSquareBatch(a, "a");
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      T* const det_data = Elements<T>(det, shape.batch, "det");
      Determinants<T>(stream, allocator, shape, a, {AsElements(det_data), nullptr, nullptr});
    });
  });
}

ffi::Error Slogdet(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
                   ffi::Result<ffi::AnyBuffer> sign, ffi::Result<ffi::AnyBuffer> logabsdet) {
  return Guard("linalg_slogdet", [&] {
    const BatchShape shape = SplitSquareBatch(a, "a");
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      T* const sign_data = Elements<T>(sign, shape.batch, "sign");
      auto* const logarithm = Elements<Real<T>>(logabsdet, shape.batch, "logabsdet");
      Determinants<T>(stream, allocator, shape, a, {nullptr, AsElements(sign_data), logarithm});
    });
  });
}

}  // namespace
}  // namespace linalg::cuda

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_inv, linalg::cuda::Inv,
                              (linalg::Signature<1, 2, linalg::ffi::PlatformStream<cudaStream_t>,
                                                 linalg::ffi::ScratchAllocator>()));

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_det, linalg::cuda::Det,
                              (linalg::Signature<1, 1, linalg::ffi::PlatformStream<cudaStream_t>,
                                                 linalg::ffi::ScratchAllocator>()));

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_slogdet, linalg::cuda::Slogdet,
                              (linalg::Signature<1, 2, linalg::ffi::PlatformStream<cudaStream_t>,
                                                 linalg::ffi::ScratchAllocator>()));
