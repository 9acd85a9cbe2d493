// Eigenvalues and right eigenvectors of general matrices; complex, whatever the operand is.
//
// cuSOLVER's geev, which has no left vectors, on a column-major copy of one matrix after another. A
// real matrix's vectors come as real and imaginary parts in neighbouring columns, and are put
// together here. A matrix that holds NaN or Inf goes to it as the identity; it gets NaN and
// info = -1.
#include <mutex>

#include "kernels/cuda/handles.h"
#include "kernels/cuda/iterative.h"
#include "kernels/handlers.h"

namespace linalg::cuda {
namespace {

// Xgeev has a race between host threads before CUDA 13.0 Update 1.
std::mutex geev_mutex;

// Row-major complex vectors from the real columns of a matrix with eigenvalues w.
template <class V>
struct JoinColumns {
  int64_t n;
  const small::Complex<V>* w;
  const V* columns;
  small::Complex<V>* target;

  __device__ void operator()(int64_t place) const {
    const int64_t i = place / n, j = place % n;
    const V sign = LoadGlobal(w + j).im;
    small::Complex<V> x{columns[j * n + i], V(0)};
    // The first of a pair is that with the positive imaginary part. After an iteration that failed
    // one may lack the other.
    if (sign > V(0) && j + 1 < n) x.im = columns[(j + 1) * n + i];
    if (sign < V(0) && j > 0) x = {columns[(j - 1) * n + i], -x.re};
    StoreGlobal(x, target + place);
  }
};

// `vectors` is null if only values are wanted.
template <class T>
void RunEig(cudaStream_t stream, ffi::ScratchAllocator& allocator, int64_t batch, int64_t n,
            const T* a, std::complex<Real<T>>* values, std::complex<Real<T>>* vectors,
            int32_t* info) {
  using C = std::complex<Real<T>>;
  if (batch == 0) return;
  if (n == 0) {
    Check(cudaMemsetAsync(info, 0, batch * sizeof(int32_t), stream), "cudaMemsetAsync");
    return;
  }
  Scratch scratch(allocator);
  const int64_t size = n * n;
  const auto scales = MeasureBatch(stream, scratch, batch, size, AsElements(a), info);
  T* const matrix = scratch.Take<T>(size);
  T* const columns = vectors != nullptr ? scratch.Take<T>(size) : nullptr;
  const LentSolver lent(stream);
  const auto [solver, parameters] = lent.get();
  const auto job = vectors != nullptr ? vendor::kVectors : vendor::kNoVectors;
  const vendor::Geev<T, C> geev(solver, parameters, job, n, matrix, values, columns);
  Workspace work(stream, scratch, geev);
  int32_t* const vendors_info = scratch.Take<int32_t>(batch);
  for (int64_t i = 0; i < batch; ++i) {
    ForEach(stream, size, CopyScaled<Element<T>>{scales, i, n, n, true, AsElements(matrix)});
    C* const w = values + i * n;
    // Under the mutex nothing but Xgeev is waited for: what is on the stream before it may need
    // another device, whose thread may want the mutex.
    Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    {
      const std::lock_guard<std::mutex> lock(geev_mutex);
      geev.Run(matrix, w, columns, work.device(), work.host(), vendors_info + i);
      work.Wait();
    }
    if (vectors == nullptr) continue;
    C* const target = vectors + i * size;
    if constexpr (kIsComplex<T>) {
      Transpose(stream, 1, n, n, static_cast<const T*>(columns), 0, target, 0);
    } else {
      ForEach(stream, size, JoinColumns<T>{n, AsElements(w), columns, AsElements(target)});
    }
  }
  ForEach(stream, batch, MergeInfo{info, vendors_info});
  ForEach(stream, batch * n, ScaleBack<Element<C>>{AsElements(values), n, scales.inverses, info});
  if (vectors == nullptr) return;
  ForEach(stream, batch * size, FillFailed<Element<C>>{AsElements(vectors), size, info});
}

ffi::Error Eig(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
               ffi::Result<ffi::AnyBuffer> values, ffi::Result<ffi::AnyBuffer> vectors,
               ffi::Result<ffi::AnyBuffer> info) {
  return Guard("linalg_eig", [&] {
    const BatchShape shape = SplitSquareBatch(a, "a");
    const int64_t batch = shape.batch, n = shape.rows;
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      using C = std::complex<Real<T>>;
      RunEig<T>(stream, allocator, batch, n, Elements<T>(a, batch * n * n, "a"),
                Elements<C>(values, batch * n, "the eigenvalues"),
                Elements<C>(vectors, batch * n * n, "the eigenvectors"),
                Elements<int32_t>(info, batch, "info"));
    });
  });
}

ffi::Error Eigvals(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
                   ffi::Result<ffi::AnyBuffer> values, ffi::Result<ffi::AnyBuffer> info) {
  return Guard("linalg_eigvals", [&] {
    const BatchShape shape = SplitSquareBatch(a, "a");
    const int64_t batch = shape.batch, n = shape.rows;
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      using C = std::complex<Real<T>>;
      RunEig<T>(stream, allocator, batch, n, Elements<T>(a, batch * n * n, "a"),
                Elements<C>(values, batch * n, "the eigenvalues"), nullptr,
                Elements<int32_t>(info, batch, "info"));
    });
  });
}

}  // namespace
}  // namespace linalg::cuda

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_eig, linalg::cuda::Eig,
                              (linalg::Signature<1, 3, linalg::ffi::PlatformStream<cudaStream_t>,
                                                 linalg::ffi::ScratchAllocator>()));

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_eigvals, linalg::cuda::Eigvals,
                              (linalg::Signature<1, 2, linalg::ffi::PlatformStream<cudaStream_t>,
                                                 linalg::ffi::ScratchAllocator>()));
