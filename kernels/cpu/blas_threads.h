// Keeps OpenBLAS to one thread per call while handlers call it from several threads.
//
// OpenBLAS's threads collapse under contention, and their number is one for the whole process. The
// first handler that needs single-threaded calls saves the number and sets it to 1. The last
// handler to leave puts it back. A handler that works on one large matrix alone keeps the user's
// number.
#pragma once

namespace linalg {

class BlasThreads {
 public:
  enum class Count { kOne, kUsers };

  explicit BlasThreads(Count count);
  ~BlasThreads();
  BlasThreads(const BlasThreads&) = delete;
  BlasThreads& operator=(const BlasThreads&) = delete;
};

// The library's own functions, which the module finds at load time. Without them, nothing is
// changed: LAPACK is not OpenBLAS's.
void SetBlasThreadFunctions(int (*get)(), void (*set)(int));

// Whether kUsers keeps the user's threads. At first it means kOne.
void AllowUsersBlasThreads(bool allowed);

// The user's number of threads, or 0 if it is not known.
int UsersBlasThreads();

}  // namespace linalg
