// Makes allocations of one library of a process fail. api/test_faults.py preloads it.
//
// The return address of an allocation tells which library made it. Strings allocate inside
// libstdc++, so the first address above it counts then. Allocations of all other libraries succeed.
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

namespace {

struct Range {
  uintptr_t first = 0, last = 0;

  bool Holds(const void* address) const {
    const auto place = reinterpret_cast<uintptr_t>(address);
    return first <= place && place < last;
  }
};

Range library, standard_library;
std::atomic<bool> counting = false;
std::atomic<long> seen = 0, failed = 0;
long first_to_fail, last_to_fail;

// The first frame above a caller in libstdc++ that lies outside it.
bool IsForLibrary() {
  static thread_local bool within = false;
  if (within) return false;  // allocations of backtrace itself
  within = true;
  void* frames[24];
  const int count = backtrace(frames, 24);
  within = false;
  bool passed = false;
  for (int i = 0; i < count; ++i) {
    if (standard_library.Holds(frames[i])) {
      passed = true;
    } else if (passed) {
      return library.Holds(frames[i]);
    }
  }
  return false;
}

bool Fails(const void* caller) {
  if (!counting.load(std::memory_order_relaxed)) return false;
  if (!library.Holds(caller) && !(standard_library.Holds(caller) && IsForLibrary())) return false;
  const long number = ++seen;
  if (number < first_to_fail || number > last_to_fail) return false;
  ++failed;
  return true;
}

void* Allocate(size_t size, size_t alignment, const void* caller) {
  if (Fails(caller)) return nullptr;
  if (size == 0) size = 1;
  if (alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) return std::malloc(size);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* OrThrow(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// From now on, allocations `first` to `last` of a library fail, counted from 1. The library's path
// ends like this.
extern "C" void fail_allocations(const char* name, long first, long last) {
  struct Names {
    const char* library;
    bool found = false;
  } names{name};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* const wanted = static_cast<Names*>(data);
        const char* const found = std::strstr(info->dlpi_name, wanted->library);
        const bool standard = std::strstr(info->dlpi_name, "libstdc++") != nullptr;
        if (found == nullptr && !standard) return 0;
        if (!standard) wanted->found = true;
        Range& range = standard ? standard_library : library;
        range = {UINTPTR_MAX, 0};
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& segment = info->dlpi_phdr[i];
          if (segment.p_type != PT_LOAD) continue;
          const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
          range.first = std::min<uintptr_t>(range.first, begin);
          range.last = std::max<uintptr_t>(range.last, begin + segment.p_memsz);
        }
        return 0;
      },
      &names);
  if (!names.found) std::abort();
  void* frame;
  backtrace(&frame, 1);  // loads its libraries now
  first_to_fail = first;
  last_to_fail = last;
  seen = failed = 0;
  counting = true;
}

// Ends the failures, and returns their number.
extern "C" long stop_failing() {
  counting = false;
  return failed;
}

#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))

void* operator new(size_t size) { return OrThrow(Allocate(size, 1, CALLER)); }
void* operator new[](size_t size) { return OrThrow(Allocate(size, 1, CALLER)); }
void* operator new(size_t size, std::align_val_t alignment) {
  return OrThrow(Allocate(size, static_cast<size_t>(alignment), CALLER));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return OrThrow(Allocate(size, static_cast<size_t>(alignment), CALLER));
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return Allocate(size, 1, CALLER);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return Allocate(size, 1, CALLER);
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

// XLA's pool gets this number of threads, so batches go to several threads on any machine.
unsigned std::thread::hardware_concurrency() noexcept { return 4; }
