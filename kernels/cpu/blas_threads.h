// Keeps OpenBLAS to one thread per call while handlers call it from several threads.
//
// OpenBLAS's threads collapse under contention and its thread count is one number for the whole
// process. The first handler that needs single-threaded calls saves that number and sets it to 1;
// the last handler to leave puts it back. A handler that works on one large matrix with nothing
// beside it keeps the user's number, so there LAPACK uses all of the user's threads.
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

// The library's own functions, found by the module at load time; without them (a LAPACK that is
// not OpenBLAS) nothing is changed.
void SetBlasThreadFunctions(int (*get)(), void (*set)(int));

// Whether kUsers means what it says; at first it is kOne.
void AllowUsersBlasThreads(bool allowed);

// The user's thread count; 0 if nothing is known of it.
int UsersBlasThreads();

}  // namespace linalg
