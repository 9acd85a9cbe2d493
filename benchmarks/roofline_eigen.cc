// Eigen's decompositions for roofline.py: batches of row-major matrices, one matrix per thread.
//
// Eigen sees the transpose of each matrix, which takes the same time. A single matrix is left to
// Eigen's own threads, which only its products have.

#include <complex>

#include <Eigen/Dense>

namespace {

template <typename T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
template <typename T>
using View = Eigen::Map<Matrix<T>>;
template <typename T>
using Vector = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, 1>>;

template <typename Each>
void Batch(int batch, int threads, Each each) {
  Eigen::setNbThreads(batch > 1 ? 1 : threads);
#pragma omp parallel for schedule(static) num_threads(threads) if (batch > 1)
  for (int i = 0; i < batch; ++i) each(static_cast<long>(i));
}

template <typename T>
void Cholesky(int n, int batch, int threads, T* a, T* l) {
  Batch(batch, threads, [=](long i) {
    View<T>(l + i * n * n, n, n) = View<T>(a + i * n * n, n, n).llt().matrixL();
  });
}

template <typename T>
void Lu(int n, int batch, int threads, T* a, T* lu) {
  Batch(batch, threads, [=](long i) {
    View<T>(lu + i * n * n, n, n) = View<T>(a + i * n * n, n, n).partialPivLu().matrixLU();
  });
}

template <typename T>
void Qr(int n, int batch, int threads, T* a, T* q, T* r) {
  Batch(batch, threads, [=](long i) {
    Eigen::HouseholderQR<Matrix<T>> qr(View<T>(a + i * n * n, n, n));
    View<T>(q + i * n * n, n, n) = qr.householderQ();
    View<T>(r + i * n * n, n, n) = qr.matrixQR().template triangularView<Eigen::Upper>();
  });
}

template <typename T>
void Eigh(int n, int batch, int threads, T* a, T* w, T* v) {
  Batch(batch, threads, [=](long i) {
    Eigen::SelfAdjointEigenSolver<Matrix<T>> solver(View<T>(a + i * n * n, n, n));
    Vector<T>(w + i * n, n) = solver.eigenvalues();
    View<T>(v + i * n * n, n, n) = solver.eigenvectors();
  });
}

template <typename T>
void Svd(int n, int batch, int threads, T* a, T* u, T* s, T* v) {
  Batch(batch, threads, [=](long i) {
    Eigen::BDCSVD<Matrix<T>> svd(View<T>(a + i * n * n, n, n),
                                 Eigen::ComputeFullU | Eigen::ComputeFullV);
    View<T>(u + i * n * n, n, n) = svd.matrixU();
    Vector<T>(s + i * n, n) = svd.singularValues();
    View<T>(v + i * n * n, n, n) = svd.matrixV();
  });
}

template <typename T>
void Solve(int n, int batch, int threads, T* a, T* b, T* x) {
  Batch(batch, threads, [=](long i) {
    Vector<T>(x + i * n, n) =
        View<T>(a + i * n * n, n, n).partialPivLu().solve(Vector<T>(b + i * n, n));
  });
}

template <typename T>
void Inv(int n, int batch, int threads, T* a, T* x) {
  Batch(batch, threads, [=](long i) {
    View<T>(x + i * n * n, n, n) = View<T>(a + i * n * n, n, n).partialPivLu().inverse();
  });
}

// The transpose of a product is the product of the transposes in the other order.
template <typename T>
void Product(int n, int batch, int threads, T* a, T* b, T* c) {
  Batch(batch, threads, [=](long i) {
    View<T>(c + i * n * n, n, n).noalias() =
        View<T>(b + i * n * n, n, n) * View<T>(a + i * n * n, n, n);
  });
}

}  // namespace

#define DTYPE(letter, T)                                                           \
  void eigen_cholesky_##letter(int n, int batch, int threads, T* a, T* l) {        \
    Cholesky(n, batch, threads, a, l);                                             \
  }                                                                                \
  void eigen_lu_##letter(int n, int batch, int threads, T* a, T* lu) {             \
    Lu(n, batch, threads, a, lu);                                                  \
  }                                                                                \
  void eigen_qr_##letter(int n, int batch, int threads, T* a, T* q, T* r) {        \
    Qr(n, batch, threads, a, q, r);                                                \
  }                                                                                \
  void eigen_eigh_##letter(int n, int batch, int threads, T* a, T* w, T* v) {      \
    Eigh(n, batch, threads, a, w, v);                                              \
  }                                                                                \
  void eigen_svd_##letter(int n, int batch, int threads, T* a, T* u, T* s, T* v) { \
    Svd(n, batch, threads, a, u, s, v);                                            \
  }                                                                                \
  void eigen_solve_##letter(int n, int batch, int threads, T* a, T* b, T* x) {     \
    Solve(n, batch, threads, a, b, x);                                             \
  }                                                                                \
  void eigen_inv_##letter(int n, int batch, int threads, T* a, T* x) {             \
    Inv(n, batch, threads, a, x);                                                  \
  }                                                                                \
  void eigen_product_##letter(int n, int batch, int threads, T* a, T* b, T* c) {   \
    Product(n, batch, threads, a, b, c);                                           \
  }

extern "C" {
DTYPE(f, float)
DTYPE(d, double)

void eigen_version(int* version) {
  version[0] = EIGEN_WORLD_VERSION;
  version[1] = EIGEN_MAJOR_VERSION;
  version[2] = EIGEN_MINOR_VERSION;
}
}
