// Operands of random bits in memory of their own. Accesses beyond its end are caught by a
// sanitizer, or with LINALG_TEST_MODULE defined, by protected pages.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <string_view>
#include <type_traits>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace linalg {

using DataType = XLA_FFI_DataType;

// The numbers that determine a call. They come from the given bytes, so that a fuzzer which changes
// one byte changes one choice. When the bytes are used up, the numbers are random.
class Generator {
 public:
  explicit Generator(uint64_t seed) : engine_(seed) {}
  explicit Generator(std::string_view bytes)
      : engine_(std::hash<std::string_view>()(bytes)), bytes_(bytes) {}

  int64_t Uniform(int64_t first, int64_t last) {
    if (bytes_.empty()) return std::uniform_int_distribution<int64_t>(first, last)(engine_);
    return first + static_cast<int64_t>(Byte()) % (last - first + 1);
  }
  uint64_t Bits(size_t bytes) {
    if (bytes_.empty()) return engine_();
    uint64_t bits = 0;
    for (size_t i = 0; i < bytes; ++i) bits = bits << 8 | Byte();
    return bits;
  }
  double Normal() { return std::normal_distribution<double>()(engine_); }

 private:
  uint64_t Byte() {
    if (bytes_.empty()) return engine_() & 0xff;
    const auto byte = static_cast<unsigned char>(bytes_[0]);
    bytes_.remove_prefix(1);
    return byte;
  }

  std::mt19937_64 engine_;
  std::string_view bytes_;
};

inline int64_t Uniform(Generator& random, int64_t first, int64_t last) {
  return random.Uniform(first, last);
}
inline bool OneIn(Generator& random, int64_t count) { return Uniform(random, 1, count) == 1; }

constexpr size_t ElementBytes(DataType dtype) {
  switch (dtype) {
    case XLA_FFI_DataType_C128:
      return 16;
    case XLA_FFI_DataType_F64:
    case XLA_FFI_DataType_C64:
    case XLA_FFI_DataType_S64:
      return 8;
    case XLA_FFI_DataType_F32:
    case XLA_FFI_DataType_S32:
      return 4;
    default:
      return 1;
  }
}
inline size_t PartBytes(DataType dtype) {
  const bool complex = dtype == XLA_FFI_DataType_C64 || dtype == XLA_FFI_DataType_C128;
  return ElementBytes(dtype) / (complex ? 2 : 1);
}

#if defined(LINALG_TEST_MODULE)

inline size_t PageSize() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

struct UnmapPages {
  size_t size = 0;  // without those on either side
  void operator()(char* pages) const { munmap(pages - PageSize(), size + 2 * PageSize()); }
};

// Bytes that begin with their first page if `offset` is 0, and otherwise end with their last page.
class Memory {
 public:
  Memory() = default;
  Memory(size_t offset, size_t bytes) : bytes_(bytes) {
    const size_t size = std::max<size_t>(1, (bytes + PageSize() - 1) / PageSize()) * PageSize();
    void* const all =
        mmap(nullptr, size + 2 * PageSize(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) throw std::bad_alloc();
    pages_ = {static_cast<char*>(all) + PageSize(), UnmapPages{size}};
    if (mprotect(pages_.get(), size, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    std::memset(pages_.get(), kBeside, size);
    before_ = offset == 0 ? 0 : size - bytes;
  }

  char* data() const { return pages_.get() + before_; }
  // Whether the memory next to the bytes, in their pages, is unchanged.
  bool IsKept() const {
    const std::string_view all(pages_.get(), pages_.get_deleter().size);
    const auto kept = [](std::string_view x) {
      return x.find_first_not_of(kBeside) == std::string_view::npos;
    };
    return all.empty() || (kept(all.substr(0, before_)) && kept(all.substr(before_ + bytes_)));
  }

 private:
  static constexpr char kBeside = '\x33';

  std::unique_ptr<char, UnmapPages> pages_;
  size_t before_ = 0, bytes_ = 0;
};

#else

// Bytes at an offset in memory. Both have the same end.
class Memory {
 public:
  Memory() = default;
  Memory(size_t offset, size_t bytes)
      : memory_(static_cast<char*>(std::malloc(offset + bytes)), &std::free), offset_(offset) {}

  char* data() const { return memory_.get() + offset_; }
  bool IsKept() const { return true; }  // otherwise the sanitizer has reported it

 private:
  std::unique_ptr<char, void (*)(void*)> memory_{nullptr, &std::free};
  size_t offset_ = 0;
};

#endif

struct Buffer {
  DataType dtype;
  std::vector<int64_t> dimensions;
  Memory memory;
  char* data = nullptr;

  size_t bytes() const {
    size_t count = ElementBytes(dtype);
    for (const int64_t size : dimensions) count *= size;
    return count;
  }

  // Removes the last `missing` bytes.
  void Allocate(Generator& random, size_t missing = 0) {
    // The address of memory is a multiple of 16.
    const size_t offset = PartBytes(dtype) * Uniform(random, missing > 0 ? 1 : 0, 3);
    memory = Memory(offset, bytes() - std::min(missing, bytes()));
    data = memory.data();
  }
};

template <class Real>
Real RandomReal(Generator& random, int kind) {
  using Limits = std::numeric_limits<Real>;
  using Bits = std::conditional_t<sizeof(Real) == 4, uint32_t, uint64_t>;
  const Real normal = static_cast<Real>(random.Normal());
  switch (kind) {
    case 0:
      return std::bit_cast<Real>(static_cast<Bits>(random.Bits(sizeof(Real))));
    case 1:
      return static_cast<Real>(Uniform(random, -2, 2));
    case 2:
      return normal * Limits::max() / 8;
    case 3:
      return normal * Limits::min();
    case 4:
      return OneIn(random, 40) ? Limits::quiet_NaN() : normal;
    case 5:
      return OneIn(random, 40) ? Limits::infinity() : normal;
    case 6:
      return std::ldexp(normal, static_cast<int>(Uniform(random, -60, 60)));
    case 7:
      return 0;
    default:
      return normal;
  }
}

inline void Fill(Generator& random, Buffer& buffer) {
  const int kind = static_cast<int>(Uniform(random, 0, 12));
  const auto fill = [&](auto* first) {
    using X = std::remove_pointer_t<decltype(first)>;
    for (size_t i = 0; i < buffer.bytes() / sizeof(X); ++i) {
      first[i] = RandomReal<X>(random, kind);
    }
    // Matrices near an identity are positive definite, or valid factors.
    const size_t rank = buffer.dimensions.size();
    if (rank < 2 || kind < 10 || buffer.bytes() == 0) return;
    const int64_t rows = buffer.dimensions[rank - 2], cols = buffer.dimensions[rank - 1];
    const int64_t parts = ElementBytes(buffer.dtype) / sizeof(X);
    for (size_t i = 0; i < buffer.bytes() / sizeof(X); ++i) {
      const int64_t element = static_cast<int64_t>(i) / parts % (rows * cols);
      first[i] /= static_cast<X>(4 * rows);
      if (i % parts == 0 && element / cols == element % cols) first[i] += 1;
    }
  };
  if (PartBytes(buffer.dtype) == 8 && buffer.dtype != XLA_FFI_DataType_S64) {
    fill(reinterpret_cast<double*>(buffer.data));
  } else if (PartBytes(buffer.dtype) == 4 && buffer.dtype != XLA_FFI_DataType_S32) {
    fill(reinterpret_cast<float*>(buffer.data));
  } else if (kind < 6 && buffer.dtype == XLA_FFI_DataType_S32 && !buffer.dimensions.empty() &&
             buffer.bytes() > 0) {
    const int64_t last = buffer.dimensions.back();
    auto* const first = reinterpret_cast<int32_t*>(buffer.data);
    for (size_t i = 0; i < buffer.bytes() / 4; ++i) {
      first[i] = static_cast<int32_t>(Uniform(random, 0, last - 1));
    }
  } else {
    for (size_t i = 0; i < buffer.bytes(); ++i)
      buffer.data[i] = static_cast<char>(random.Uniform(0, 255));
  }
}

}  // namespace linalg
