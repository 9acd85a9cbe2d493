#include "kernels/cpu/blas_threads.h"

#include <mutex>

namespace linalg {
namespace {

// Guards the fields below, which describe every BlasThreads object of the process.
std::mutex mutex;
int alive = 0;
bool users_allowed = false;
int users_count = 0;  // to restore; 0 while the user's number is in force

int (*get_threads)() = nullptr;
void (*set_threads)(int) = nullptr;

}  // namespace

BlasThreads::BlasThreads(Count count) {
  const std::lock_guard<std::mutex> lock(mutex);
  ++alive;
  if (set_threads == nullptr || users_count != 0) return;
  if (count == Count::kUsers && users_allowed && alive == 1) return;
  const int current = get_threads();
  if (current <= 1) return;
  users_count = current;
  set_threads(1);
}

BlasThreads::~BlasThreads() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (--alive > 0 || users_count == 0) return;
  // Keeps a number that the user has set in the meantime.
  if (get_threads() == 1) set_threads(users_count);
  users_count = 0;
}

void SetBlasThreadFunctions(int (*get)(), void (*set)(int)) {
  const std::lock_guard<std::mutex> lock(mutex);
  get_threads = get;
  set_threads = set;
}

void AllowUsersBlasThreads(bool allowed) {
  const std::lock_guard<std::mutex> lock(mutex);
  users_allowed = allowed;
}

int UsersBlasThreads() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (get_threads == nullptr) return 0;
  return users_count != 0 ? users_count : get_threads();
}

}  // namespace linalg
