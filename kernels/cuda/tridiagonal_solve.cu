// Tridiagonal systems, one per thread whatever their size: the recurrence along the diagonal is
// serial. The operands are first laid out with element i of every system beside those of the
// others, so that neighbouring threads read neighbouring words.
#include "kernels/small/tridiagonal_solve.h"

#include "kernels/cuda/launch.h"
#include "kernels/handlers.h"

namespace linalg::cuda {
namespace {

// The elements of one of many systems that lie between each other.
template <class E>
struct Strided {
  E* data;
  int64_t stride;

  __device__ __forceinline__ E& operator[](int64_t i) const { return data[i * stride]; }
  __device__ __forceinline__ Strided operator+(int64_t i) const {
    return {data + i * stride, stride};
  }
};

template <class E>
struct SolveSystems {
  int n, cols;
  bool perturb;
  int64_t batch;
  E* matrices;  // three diagonals, and room for the second upper one
  E* x;
  int32_t* info;

  __device__ void operator()(int64_t i) const {
    const auto diagonal = [&](int k) { return Strided<E>{matrices + k * n * batch + i, batch}; };
    info[i] = static_cast<int32_t>(small::SolveTridiagonal<E, Strided<E>>(
        n, {diagonal(0), diagonal(1), diagonal(2), diagonal(3)}, perturb, cols,
        Strided<E>{x + i, batch}));
  }
};

ffi::Error TridiagonalSolve(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer dl,
                            ffi::AnyBuffer d, ffi::AnyBuffer du, ffi::AnyBuffer b,
                            ffi::Result<ffi::AnyBuffer> x, ffi::Result<ffi::AnyBuffer> info,
                            bool perturb_singular) {
  return Guard("linalg_tridiagonal_solve", [&] {
    const BatchShape shape = SplitBatch(b, 2, "b");
    const int64_t batch = shape.batch, n = shape.rows, cols = shape.cols;
    DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
      const T* const diagonals[] = {Elements<T>(dl, batch * n, "dl"),
                                    Elements<T>(d, batch * n, "d"),
                                    Elements<T>(du, batch * n, "du")};
      const T* const b_data = Elements<T>(b, batch * n * cols, "b");
      T* const x_data = Elements<T>(x, batch * n * cols, "x");
      int32_t* const info_data = Elements<int32_t>(info, batch, "info");
      if (batch == 0) return;
      ToInt(n * cols);
      Scratch scratch(allocator);
      T* const matrices = scratch.Take<T>(4 * n * batch);
      T* const work = scratch.Take<T>(n * cols * batch);
      for (int k = 0; k < 3; ++k) {
        Transpose(stream, 1, batch, n, diagonals[k], 0, matrices + k * n * batch, 0);
      }
      Transpose(stream, 1, batch, n * cols, b_data, 0, work, 0);
      ForEach(stream, batch,
              SolveSystems<Element<T>>{ToInt(n), ToInt(cols), perturb_singular, batch,
                                       AsElements(matrices), AsElements(work), info_data});
      Transpose(stream, 1, n * cols, batch, static_cast<const T*>(work), 0, x_data, 0);
    });
  });
}

}  // namespace
}  // namespace linalg::cuda

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_tridiagonal_solve, linalg::cuda::TridiagonalSolve,
                              (linalg::Signature<4, 2, linalg::ffi::PlatformStream<cudaStream_t>,
                                                 linalg::ffi::ScratchAllocator>()
                                   .Attr<bool>("perturb_singular")));
