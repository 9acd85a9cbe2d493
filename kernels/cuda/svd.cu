// Singular values and vectors.
//
// By Jacobi's method: tiny square matrices one per thread; others one per team of threads, a wide
// one as its adjoint, in shared memory, or if they are many in global memory. Else cuSOLVER takes
// one after another. gesvdj is given the row-major matrix as it lies, transposed: Vᴴ is its U as it
// lies there. gesvd, for the largest, wants no fewer rows than columns, which a wide matrix has as
// it lies: U and Vᴴ are its VT and U. To both a matrix that holds NaN or Inf, which gets NaN and
// info = -1, goes as the identity.
#include "kernels/team/svd.h"

#include "kernels/cuda/handles.h"
#include "kernels/cuda/iterative.h"
#include "kernels/handlers.h"
#include "kernels/small/jacobi_svd.h"

namespace linalg::cuda {
namespace {

template <class E>
struct SvdProblem {
  using V = RealElement<E>;
  int m, n;
  bool vectors, full;
  const E* a;
  E* u;  // used, with vh, if vectors are wanted
  V* s;
  E* vh;
  int32_t* info;

  __host__ __device__ bool Tall() const { return m >= n; }
  __host__ __device__ int Longer() const { return m > n ? m : n; }
  __host__ __device__ int Shorter() const { return m > n ? n : m; }
  // Columns of U of a tall matrix, of V of a wide one.
  __host__ __device__ int Width() const { return full ? Longer() : Shorter(); }
  __host__ __device__ int64_t LeftSize() const {
    return static_cast<int64_t>(m) * (full ? m : Shorter());
  }
  __host__ __device__ int64_t RightSize() const {
    return static_cast<int64_t>(n) * (full ? n : Shorter());
  }
};

template <class E, bool kVectors>
struct SmallSvd {
  using V = RealElement<E>;
  using Work = small::JacobiWork<E, V, true>;
  SvdProblem<E> of;
  Staged matrix, values, info;  // a slice begins with its Work, and that with the matrix

  __device__ void Load(int64_t first, int count, char* memory, int64_t bytes) const {
    matrix.Load(of.a, first, count, memory, bytes);
  }
  __device__ void Run(char* slice) const {
    *At<V>(slice, info.offset) = small::JacobiSvd<kVectors>(WorkIn(slice), of.n, of.n, false);
  }
  __device__ void Store(int64_t first, int count, char* memory, int64_t bytes) const {
    if constexpr (kVectors) {
      matrix.Store(of.u, first, count, memory, bytes,
                   [&](char* slice, int place) { return WorkIn(slice).left[place]; });
      matrix.Store(of.vh, first, count, memory, bytes,
                   [&](char* slice, int place) { return WorkIn(slice).right[place]; });
    }
    values.Store(of.s, first, count, memory, bytes,
                 [&](char* slice, int place) { return WorkIn(slice).s[place]; });
    info.StoreIntegers<V>(of.info, first, count, memory, bytes);
  }

 private:
  __device__ Work WorkIn(char* slice) const { return Work(At<V>(slice, 0), of.n, of.n, false); }
};

// Launches threads, if their matrices are square and fit in their share of shared memory.
template <bool kVectors, class E>
bool RunSmallSvd(cudaStream_t stream, int64_t batch, const SvdProblem<E>& of) {
  using V = RealElement<E>;
  const int64_t n = of.n, size = SmallSvd<E, kVectors>::Work::Size(n, n, false);
  if (of.m != n || size * static_cast<int64_t>(sizeof(V)) > kAloneSvdBytes) return false;
  Slice slice(sizeof(V));
  slice.Take<V>(size);
  const Staged info(1, 1, slice.Take<V>(1));
  const SmallSvd<E, kVectors> job{of, Staged(n * n, n * n, 0), Staged(n, n, 0), info};
  LaunchAlone(stream, job, batch, slice);
  return true;
}

// Places in a slice.
struct SvdPlaces {
  int a, v, sums, values, norms, order, taus, partial;
};

template <class E, bool kVectors>
struct TeamSvd {
  static constexpr int kMostThreads = kGlobalThreads;
  using V = RealElement<E>;
  SvdProblem<E> of;
  int ld, ldv;
  SvdPlaces places;

  __device__ void Run(const Team& team, int64_t matrix, char* slice) const {
    const int m = of.Longer(), n = of.Shorter();
    const team::SvdWork<E> work{At<E>(slice, places.a),
                                ld,
                                At<E>(slice, places.v),
                                ldv,
                                At<team::ColumnSums<E>>(slice, places.sums),
                                At<V>(slice, places.values),
                                At<V>(slice, places.norms),
                                At<int32_t>(slice, places.order),
                                At<E>(slice, places.taus),
                                At<E>(slice, places.partial)};
    Load(team, of.a + matrix * m * n, work.a);
    const int info = team::JacobiSvd<kVectors>(team, m, n, of.Width(), work);
    team.Phase([&](int thread) {
      for (int k = thread; k < n; k += team.size()) {
        of.s[matrix * n + k] = info != 0 ? NaN<V>() : work.values[k];
      }
      if (thread == 0) of.info[matrix] = info;
    });
    if constexpr (kVectors) {
      E* const u = of.u + matrix * of.LeftSize();
      E* const vh = of.vh + matrix * of.RightSize();
      const auto left = [&](int i, int j) { return info != 0 ? NaN<E>() : work.a[i * ld + j]; };
      const auto right = [&](int i, int j) { return info != 0 ? NaN<E>() : work.v[i * ldv + j]; };
      if (of.Tall()) {
        StoreMatrix(team, m, of.Width(), u, left);
        StoreMatrix(team, n, n, vh, [&](int i, int j) { return Conj(right(j, i)); });
      } else {
        StoreMatrix(team, n, n, u, right);
        StoreMatrix(team, of.Width(), m, vh, [&](int i, int j) { return Conj(left(j, i)); });
      }
    }
  }

 private:
  __device__ void Load(const Team& team, const E* source, E* a) const {
    if (of.Tall()) return LoadMatrix(team, source, of.m, of.n, a, ld);
    team.Phase([&](int thread) {
      for (int e = thread; e < of.m * of.n; e += team.size()) {
        a[e % of.n * ld + e / of.n] = Conj(LoadGlobal(source + e));
      }
    });
  }
};

// Launches teams, unless the matrices are too large for them.
template <bool kVectors, class E>
bool RunTeamSvd(cudaStream_t stream, Scratch& scratch, int64_t batch, const SvdProblem<E>& of) {
  using V = RealElement<E>;
  const int64_t m = of.Longer(), n = of.Shorter();
  const int64_t ld = (kVectors ? of.Width() : of.Shorter()) | 1, ldv = n | 1;
  const int64_t bytes = (m * ld + (kVectors ? n * ldv : 0)) * static_cast<int64_t>(sizeof(E));
  const bool is_small = n <= kTeamSvd && bytes <= std::min(kTeamSvdBytes, SharedBytes());
  if (!is_small && (batch < kGlobalBatch || m * ld > kGlobalSvdElements)) return false;
  const int team_size = is_small ? QrTeamSize(m, n) : kGlobalThreads;
  Slice slice(sizeof(V));
  TeamSvd<E, kVectors> job{of, static_cast<int>(ld), static_cast<int>(ldv), {}};
  job.places = {slice.Take<E>(m * ld),
                slice.Take<E>(kVectors ? n * ldv : 0),
                slice.Take<team::ColumnSums<E>>(team_size),
                slice.Take<V>(n),
                slice.Take<V>(n),
                slice.Take<int32_t>(n),
                slice.Take<E>(kVectors ? n : 0),
                slice.Take<E>(kVectors ? team_size : 0)};
  LaunchTeamsAnywhere(stream, scratch, job, batch, team_size, slice);
  return true;
}

// factor(i, info) for each matrix, scaled, in `matrix`, or its transpose.
template <class T, class Factor>
void FactorEach(cudaStream_t stream, Scratch& scratch, int64_t batch,
                const SvdProblem<Element<T>>& of, bool transpose, T* matrix, Factor&& factor) {
  using E = Element<T>;
  const auto scales =
      ForEachScaled(stream, scratch, batch, of.m, of.n, of.a, transpose, matrix, of.info, factor);
  const int64_t n = of.Shorter();
  ForEach(stream, batch * n, ScaleBack<Real<T>>{of.s, n, scales.inverses, of.info});
  if (!of.vectors) return;
  ForEach(stream, batch * of.LeftSize(), FillFailed<E>{of.u, of.LeftSize(), of.info});
  ForEach(stream, batch * of.RightSize(), FillFailed<E>{of.vh, of.RightSize(), of.info});
}

template <class T>
void VendorSvd(cudaStream_t stream, Scratch& scratch, int64_t batch,
               const SvdProblem<Element<T>>& of) {
  const int64_t m = of.Longer(), n = of.Shorter(), width = of.Width();
  const bool vectors = of.vectors, copied = vectors && of.Tall(), in_place = vectors && !copied;
  auto* const u = reinterpret_cast<T*>(of.u);
  auto* const vh = reinterpret_cast<T*>(of.vh);
  T* const left = copied ? scratch.Take<T>(m * width) : vh;
  T* const right = copied ? scratch.Take<T>(n * n) : u;
  T* const matrix = scratch.Take<T>(m * n);
  const LentSolver lent(stream);
  const vendor::Gesvd<T, Real<T>> gesvd(lent.get().solver, lent.get().parameters, m, n,
                                        vectors ? width : 0, matrix, of.s, left, right);
  Workspace work(stream, scratch, gesvd);
  FactorEach<T>(stream, scratch, batch, of, of.Tall(), matrix, [&](int64_t i, int32_t* info) {
    gesvd.Run(matrix, of.s + i * n, left + (in_place ? i * of.RightSize() : 0),
              right + (in_place ? i * of.LeftSize() : 0), work.device(), work.host(), info);
    work.Release();
    if (!copied) return;
    Transpose(stream, 1, width, m, static_cast<const T*>(left), 0, u + i * of.LeftSize(), 0);
    Transpose(stream, 1, n, n, static_cast<const T*>(right), 0, vh + i * of.RightSize(), 0);
  });
}

// The conjugate of a column-major matrix, row-major.
template <class E>
struct WriteConjugate {
  int64_t rows, cols;
  const E* source;
  E* target;

  __device__ void operator()(int64_t place) const {
    const int64_t i = place / cols, j = place % cols;
    StoreGlobal<E>(Conj(LoadGlobal(source + j * rows + i)), target + place);
  }
};

template <class T>
void VendorJacobiSvd(cudaStream_t stream, Scratch& scratch, int64_t batch,
                     const SvdProblem<Element<T>>& of) {
  using E = Element<T>;
  auto* const vh = reinterpret_cast<T*>(of.vh);
  // They are used, and of this size, whatever is wanted.
  T* const left = of.vectors ? vh : scratch.Take<T>(of.RightSize());
  T* const right = scratch.Take<T>(of.LeftSize());
  T* const matrix = scratch.Take<T>(static_cast<int64_t>(of.m) * of.n);
  const LentSolver lent(stream);
  const vendor::Gesvdj<T, Real<T>> gesvdj(lent.get().solver, lent.get().jacobi, of.vectors, of.full,
                                          of.n, of.m, matrix, of.s, left, right);
  Workspace work(stream, scratch, gesvdj);
  FactorEach<T>(stream, scratch, batch, of, false, matrix, [&](int64_t i, int32_t* info) {
    gesvdj.Run(matrix, of.s + i * of.Shorter(), left + (of.vectors ? i * of.RightSize() : 0), right,
               work.device(), info);
    if (!of.vectors) return;
    ForEach(
        stream, of.LeftSize(),
        WriteConjugate<E>{of.m, of.LeftSize() / of.m, AsElements(right), of.u + i * of.LeftSize()});
  });
}

template <bool kVectors, class E>
bool RunOwnSvd(cudaStream_t stream, Scratch& scratch, int64_t batch, const SvdProblem<E>& of) {
  return RunSmallSvd<kVectors>(stream, batch, of) ||
         RunTeamSvd<kVectors>(stream, scratch, batch, of);
}

template <class T>
void RunSvd(cudaStream_t stream, ffi::ScratchAllocator& allocator, int64_t batch,
            const SvdProblem<Element<T>>& of) {
  using E = Element<T>;
  if (batch == 0) return;
  if (of.Shorter() == 0) {
    Check(cudaMemsetAsync(of.info, 0, batch * sizeof(int32_t), stream), "cudaMemsetAsync");
    if (!of.vectors || !of.full) return;
    ForEach(stream, batch * of.LeftSize(), WriteIdentity<E>{of.m, of.u});
    ForEach(stream, batch * of.RightSize(), WriteIdentity<E>{of.n, of.vh});
    return;
  }
  Scratch scratch(allocator);
  if (of.vectors ? RunOwnSvd<true>(stream, scratch, batch, of)
                 : RunOwnSvd<false>(stream, scratch, batch, of)) {
    return;
  }
  if (of.Longer() <= kVendorJacobiSvd) {
    VendorJacobiSvd<T>(stream, scratch, batch, of);
  } else {
    VendorSvd<T>(stream, scratch, batch, of);
  }
}

ffi::Error Svd(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
               ffi::Result<ffi::AnyBuffer> u, ffi::Result<ffi::AnyBuffer> s,
               ffi::Result<ffi::AnyBuffer> vh, ffi::Result<ffi::AnyBuffer> info) {
  return Guard("linalg_svd", [&] {
    const BatchShape shape = SplitBatch(a, 2, "a");
    const int64_t batch = shape.batch, m = shape.rows, n = shape.cols, k = std::min(m, n);
    // Its shape tells whether the square factors are asked for.
    const int64_t cols = SplitBatch(*u, 2, "u").cols, rows = SplitBatch(*vh, 2, "vh").rows;
    if (cols != k && cols != m) throw BadArgument("u", "have min(m, n) or m columns");
    const bool full = cols != k || rows != k;
    if (rows != (full ? n : k)) throw BadArgument("vh", "have n rows if u has m columns");
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      T* const u_data = Elements<T>(u, batch * m * (full ? m : k), "u");
      T* const vh_data = Elements<T>(vh, batch * n * (full ? n : k), "vh");
      RunSvd<T>(stream, allocator, batch,
                {ToInt(m), ToInt(n), true, full, AsElements(Elements<T>(a, batch * m * n, "a")),
                 AsElements(u_data), Elements<Real<T>>(s, batch * k, "the singular values"),
                 AsElements(vh_data), Elements<int32_t>(info, batch, "info")});
    });
  });
}

ffi::Error Svdvals(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
                   ffi::Result<ffi::AnyBuffer> s, ffi::Result<ffi::AnyBuffer> info) {
  return Guard("linalg_svdvals", [&] {
    const BatchShape shape = SplitBatch(a, 2, "a");
    const int64_t batch = shape.batch, m = shape.rows, n = shape.cols;
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      RunSvd<T>(stream, allocator, batch,
                {ToInt(m), ToInt(n), false, false, AsElements(Elements<T>(a, batch * m * n, "a")),
                 nullptr, Elements<Real<T>>(s, batch * std::min(m, n), "the singular values"),
                 nullptr, Elements<int32_t>(info, batch, "info")});
    });
  });
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER(linalg_svd, linalg::cuda::Svd);
LINALG_HANDLER(linalg_svdvals, linalg::cuda::Svdvals);
