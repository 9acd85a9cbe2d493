#include "kernels/cuda/vendor.h"

#include <dlfcn.h>

#include <atomic>
#include <mutex>
#include <stdexcept>

namespace linalg::cuda::vendor {
namespace {

// The libraries of the toolkit that this module is built with. Their major versions differ.
constexpr int kToolkit = CUDART_VERSION / 1000;
const std::string kToolkitName = std::to_string(kToolkit);
const std::string kBlasName = "libcublas.so." + kToolkitName;
const std::string kSolverName = "libcusolver.so." + std::to_string(kToolkit - 1);

std::mutex mutex;
std::atomic<bool> loaded = false;
std::vector<std::string> directories;  // guarded by the mutex

// The name is tried first, because jax's plugin may have opened the library already, or the dynamic
// linker finds it.
void* Open(const std::string& name) {
  std::vector<std::string> paths = {name};
  for (const auto& directory : directories) paths.push_back(directory + "/" + name);
  std::string errors;
  for (const auto& path : paths) {
    if (void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL)) return library;
    errors += std::string("\n  ") + dlerror();
  }
  throw std::runtime_error(name + " cannot be opened. It comes with `pip install 'jax-linalg[cuda" +
                           kToolkitName + "]'`, or with a CUDA " + kToolkitName +
                           " toolkit whose libraries are on LD_LIBRARY_PATH:" + errors);
}

class Library {
 public:
  explicit Library(const std::string& name) : name_(name), handle_(Open(name)) {}

  template <class Function>
  void Find(const std::string& symbol, Function*& function) const {
    FindIfThere(symbol, function);
    if (function == nullptr) {
      throw std::runtime_error(name_ + " has no function " + symbol +
                               ": it is older than that of " +
                               (kToolkit == 12 ? "CUDA 12.1" : "CUDA 13.0"));
    }
  }

  // The function stays null in a library without it.
  template <class Function>
  void FindIfThere(const std::string& symbol, Function*& function) const {
    function = reinterpret_cast<Function*>(dlsym(handle_, symbol.c_str()));
  }

 private:
  std::string name_;
  void* handle_;
};

template <class T>
void FindTyped(const Library& solver, const Library& blas, const std::string& letter) {
  auto& f = typed_functions<T>;
  const bool complex = letter == "C" || letter == "Z";
  const auto in_solver = [&](const std::string& name, auto& function) {
    solver.Find("cusolverDn" + letter + name, function);
  };
  const std::string orgqr = complex ? "ungqr" : "orgqr";
  in_solver("potrf_bufferSize", f.potrf_bufferSize);
  in_solver("potrf", f.potrf);
  in_solver("getrf_bufferSize", f.getrf_bufferSize);
  in_solver("getrf", f.getrf);
  in_solver("geqrf_bufferSize", f.geqrf_bufferSize);
  in_solver("geqrf", f.geqrf);
  in_solver(orgqr + "_bufferSize", f.orgqr_bufferSize);
  in_solver(orgqr, f.orgqr);
  in_solver("gesvdj_bufferSize", f.gesvdj_bufferSize);
  in_solver("gesvdj", f.gesvdj);
  blas.Find("cublas" + letter + "getrfBatched", f.getrfBatched);
  blas.Find("cublas" + letter + "trsm_v2", f.trsm);
  blas.Find("cublas" + letter + "trsmBatched", f.trsmBatched);
  blas.Find("cublas" + letter + "gemmStridedBatched", f.gemmStridedBatched);
}

}  // namespace

Functions functions{};

void SetDirectories(std::vector<std::string> given) {
  const std::lock_guard<std::mutex> lock(mutex);
  directories = std::move(given);
}

void Load() {
  if (loaded.load(std::memory_order_acquire)) return;
  const std::lock_guard<std::mutex> lock(mutex);
  if (loaded.load(std::memory_order_relaxed)) return;
  // cuSOLVER needs cuBLAS, which must be opened first where neither is on the linker's path.
  const Library blas(kBlasName), solver(kSolverName);
#define LINALG_FIND(library, name) library.Find(#name, functions.name)
  LINALG_FIND(solver, cusolverDnCreate);
  LINALG_FIND(solver, cusolverDnSetStream);
  LINALG_FIND(solver, cusolverDnCreateParams);
  LINALG_FIND(solver, cusolverDnCreateGesvdjInfo);
  LINALG_FIND(solver, cusolverDnXsyevd_bufferSize);
  LINALG_FIND(solver, cusolverDnXsyevd);
  LINALG_FIND(solver, cusolverDnXgesvd_bufferSize);
  LINALG_FIND(solver, cusolverDnXgesvd);
  LINALG_FIND(solver, cusolverDnXgesvdp_bufferSize);
  LINALG_FIND(solver, cusolverDnXgesvdp);
  LINALG_FIND(blas, cublasCreate_v2);
  LINALG_FIND(blas, cublasSetStream_v2);
#undef LINALG_FIND
  // These are newer than CUDA 12.1: the first two came with 12.6, the others with 12.8.
#define LINALG_FIND_IF_THERE(name) solver.FindIfThere(#name, functions.name)
  LINALG_FIND_IF_THERE(cusolverDnXsyevBatched_bufferSize);
  LINALG_FIND_IF_THERE(cusolverDnXsyevBatched);
  LINALG_FIND_IF_THERE(cusolverDnXgeev_bufferSize);
  LINALG_FIND_IF_THERE(cusolverDnXgeev);
#undef LINALG_FIND_IF_THERE
  FindTyped<float>(solver, blas, "S");
  FindTyped<double>(solver, blas, "D");
  FindTyped<std::complex<float>>(solver, blas, "C");
  FindTyped<std::complex<double>>(solver, blas, "Z");
  loaded.store(true, std::memory_order_release);
}

void Check(int status, const char* function) {
  if (status == 0) return;
  throw std::runtime_error(std::string(function) + " failed with status " + std::to_string(status));
}

}  // namespace linalg::cuda::vendor
