// The handlers called as XLA calls them, with operands of random shapes, layouts, attributes and
// bit patterns: good calls, and calls spoilt in one respect. To be compiled with sanitizers and
// LINALG_TEST_ELEMENT: test_sanitized.py. Each operand and result has memory of its own, aligned as
// its elements are and no more. What is expected beside the sanitizers' silence:
//
// - an error is INVALID_ARGUMENT, and names the target; a good call has none;
// - operands keep their bits, and the calling thread its modes of floating point;
// - results do not depend on what their memory held before, nor on the number of threads;
// - each call ends, within a minute.
//
// Of a call with a result in the memory of an operand, which a program may ask of any handler, an
// end alone is expected: what it reads may be what it has written.
//
// Calls go on for as many seconds as the first argument says, and the second is their seed; with a
// third, results are short of their last byte, which is to be seen. Or the arguments are a file of
// a corpus each, after --corpus. With LINALG_TEST_FUZZER defined, libFuzzer has the calls' bytes.
// LAPACK is in the shared library that LINALG_TEST_LAPACK names.
//
// With LINALG_TEST_MODULE defined this is a library, which calls the handlers of a module that
// Python has loaded, as it is installed: test_random_calls.py. No sanitizer is in these, and each
// operand and result has pages of its own, between pages that nobody may touch.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <complex>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "kernels/cpu/batch.h"
#include "kernels/cpu/lapack.h"
#include "kernels/handlers.h"
#include "tests/support/stand_in_xla.h"

#if !defined(LINALG_TEST_MODULE)
unsigned std::thread::hardware_concurrency() noexcept { return 4; }
#endif

namespace linalg {
namespace {

using Element = LINALG_TEST_ELEMENT;

// What each target takes and gives: the dtype (T, its Real and its Complex, Int32), and sizes.
// Those in lower case are chosen, others follow: X the lesser of m and n; Q that or m, and V as vh
// goes with u; J one less than n; P at least k, and W one more; S and U the sides of the operand
// that a matrix of n rows stands beside.
const std::map<std::string_view, std::string_view> kSignatures = {
    {"linalg_banded_solve", "TWn Tmn Tnm > Tnm I"},
    {"linalg_cholesky", "Tnn > Tnn I"},
    {"linalg_cholesky_banded", "TWn > TWn I"},
    {"linalg_cholesky_banded_solve", "TWn Tnm > Tnm"},
    {"linalg_cholesky_jvp", "Tnn Tnn > Tnn"},
    {"linalg_cholesky_solve", "Tnn Tnk > Tnk"},
    {"linalg_cholesky_vjp", "Tnn Tnn > Tnn"},
    {"linalg_det", "Tnn > T"},
    {"linalg_det_adjugate", "Tnn > T Tnn"},
    {"linalg_eig", "Tnn > Cn Cnn I"},
    {"linalg_eig_left", "Tnn > Cn Cnn Cnn I"},
    {"linalg_eigh", "Tnn > Rn Tnn I"},
    {"linalg_eigh_jvp", "Rn Tnn Tnn > Rn Tnn"},
    {"linalg_eigh_tridiagonal", "Rn RJ > Rn Rnn I"},
    {"linalg_eigh_vjp", "Rn Tnn Rn Tnn > Tnn"},
    {"linalg_eigvals", "Tnn > Cn I"},
    {"linalg_eigvalsh", "Tnn > Rn I"},
    {"linalg_eigvalsh_tridiagonal", "Rn RJ > Rn I"},
    {"linalg_hessenberg", "Tnn > Tnn Tnn"},
    {"linalg_hessenberg_h", "Tnn > Tnn"},
    {"linalg_householder_product", "Tmn TX > Tmn"},
    {"linalg_householder_qr", "Tmn > Tmn TX"},
    {"linalg_inv", "Tnn > Tnn I"},
    {"linalg_lu", "Tmn > Tmn IX Im I"},
    {"linalg_lu_pivots_to_permutation", "Ik > IP"},
    {"linalg_lu_solve", "Tnn In Tnk > Tnk"},
    {"linalg_matmul", "Tmk Tkn > Tmn"},
    {"linalg_matmul_transpose_a", "Tkm Tkn > Tmn"},
    {"linalg_matmul_transpose_b", "Tmk Tnk > Tmn"},
    {"linalg_ormqr", "Tnm TX TSU > TSU"},
    {"linalg_qr", "Tmn > TmQ TQn"},
    {"linalg_qr_jvp", "Tmn Tnn Tmn > Tmn Tnn"},
    {"linalg_qr_pivoted", "Tmn > TmQ TQn In"},
    {"linalg_qr_r", "Tmn > TXn"},
    {"linalg_qr_vjp", "Tmn Tnn Tmn Tnn > Tmn"},
    {"linalg_schur", "Tnn > Tnn Tnn I"},
    {"linalg_slogdet", "Tnn > T R"},
    {"linalg_slogdet_inv", "Tnn > T R Tnn"},
    {"linalg_solve", "Tnn Tnk > Tnk I"},
    {"linalg_solve_lu", "Tnn Tnk > Tnk Tnn In I"},
    {"linalg_sort_key_val", "In In > In In"},
    {"linalg_svd", "Tmn > TmQ RX TVn I"},
    {"linalg_svd_jvp", "Tnn Rn Tnn Tnn > Tnn Rn Tnn"},
    {"linalg_svd_vjp", "Tnn Rn Tnn Tnn Rn Tnn > Tnn"},
    {"linalg_svdvals", "Tmn > RX I"},
    {"linalg_triangular_solve", "Tnn TSU > TSU"},
    {"linalg_tridiagonal_solve", "Tn Tn Tn Tnk > Tnk I"},
};
// Those that want as many rows as columns at least.
constexpr std::string_view kTall[] = {"linalg_householder_product", "linalg_qr_jvp",
                                      "linalg_qr_vjp"};

#if defined(LINALG_TEST_MODULE)

std::map<std::string, XLA_FFI_Handler*, std::less<>> handlers;

XLA_FFI_Handler* HandlerOf(std::string_view name) {
  const auto found = handlers.find(name);
  return found == handlers.end() ? nullptr : found->second;
}

#else

XLA_FFI_Handler* HandlerOf(std::string_view name) {
#define LINALG_CHOOSE(target, ...) \
  if (name == #target) return &target;
  LINALG_FOR_EACH_TARGET(LINALG_CHOOSE)
#undef LINALG_CHOOSE
  return nullptr;
}

#endif

// What a call is made of: numbers from the bytes that there are, so that a fuzzer which changes one
// changes one choice; and after these, random ones.
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

int64_t Uniform(Generator& random, int64_t first, int64_t last) {
  return random.Uniform(first, last);
}
bool OneIn(Generator& random, int64_t count) { return Uniform(random, 1, count) == 1; }

constexpr size_t ElementBytes(XLA_FFI_DataType dtype) {
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
size_t PartBytes(XLA_FFI_DataType dtype) {
  const bool complex = dtype == XLA_FFI_DataType_C64 || dtype == XLA_FFI_DataType_C128;
  return ElementBytes(dtype) / (complex ? 2 : 1);
}

#if defined(LINALG_TEST_MODULE)

size_t PageSize() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

struct UnmapPages {
  size_t size = 0;  // without those on either side
  void operator()(char* pages) const { munmap(pages - PageSize(), size + 2 * PageSize()); }
};

// Bytes that begin with the first of their pages, or end with the last, as `offset` is 0 or not.
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
  // Whether what is beside the bytes, in their pages, is what it was.
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

// Bytes at an offset of memory that ends where they do.
class Memory {
 public:
  Memory() = default;
  Memory(size_t offset, size_t bytes)
      : memory_(static_cast<char*>(std::malloc(offset + bytes)), &std::free), offset_(offset) {}

  char* data() const { return memory_.get() + offset_; }
  bool IsKept() const { return true; }  // or else the sanitizer has said so

 private:
  std::unique_ptr<char, void (*)(void*)> memory_{nullptr, &std::free};
  size_t offset_ = 0;
};

#endif

struct Buffer {
  XLA_FFI_DataType dtype;
  std::vector<int64_t> dimensions;
  Memory memory;
  char* data = nullptr;

  size_t bytes() const {
    size_t count = ElementBytes(dtype);
    for (const int64_t size : dimensions) count *= size;
    return count;
  }

  // Without its last `missing` bytes.
  void Allocate(Generator& random, size_t missing = 0) {
    // The address of memory is a multiple of 16.
    const size_t offset = PartBytes(dtype) * Uniform(random, missing > 0 ? 1 : 0, 3);
    memory = Memory(offset, bytes() - std::min(missing, bytes()));
    data = memory.data();
  }
};

using DataType = XLA_FFI_DataType;

template <class T>
constexpr DataType kType = static_cast<DataType>(kDtype<T>);

struct Call {
  std::string_view name;
  std::vector<Buffer> operands, results;
  std::vector<std::string_view> attributes;
  std::array<bool, 8> values = {};
  bool good = true;
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

void Fill(Generator& random, Buffer& buffer) {
  const int kind = static_cast<int>(Uniform(random, 0, 12));
  const auto fill = [&](auto* first) {
    using X = std::remove_pointer_t<decltype(first)>;
    for (size_t i = 0; i < buffer.bytes() / sizeof(X); ++i) {
      first[i] = RandomReal<X>(random, kind);
    }
    // Near an identity, as positive definite matrices are, and factors.
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

int64_t RandomSize(Generator& random) {
  const int64_t most = OneIn(random, 12) ? 90 : OneIn(random, 4) ? 34 : 9;
  return Uniform(random, OneIn(random, 20) ? 0 : 1, most);
}

class Shapes {
 public:
  Shapes(Generator& random, const Call& call) {
    for (const char letter : {'m', 'n', 'k'}) sizes_[letter] = RandomSize(random);
    if (std::ranges::count(kTall, call.name) > 0 && !OneIn(random, 10)) {
      sizes_['m'] = std::max(sizes_['m'], sizes_['n']);
    }
    const int64_t m = sizes_['m'], n = sizes_['n'];
    sizes_['X'] = std::min(m, n);
    const bool full = OneIn(random, 2);
    sizes_['Q'] = full ? m : sizes_['X'];
    sizes_['V'] = full && sizes_['Q'] != sizes_['X'] ? n : full ? n : sizes_['X'];
    sizes_['J'] = std::max<int64_t>(n - 1, 0);
    sizes_['W'] = sizes_['k'] + 1;
    sizes_['P'] = sizes_['k'] + Uniform(random, 0, 3);
    const auto found = std::ranges::find_if(
        call.attributes, [](std::string_view name) { return name.starts_with("left"); });
    const bool left =
        found == call.attributes.end() || call.values[found - call.attributes.begin()];
    sizes_['S'] = left ? n : sizes_['k'];
    sizes_['U'] = left ? sizes_['k'] : n;
    int64_t largest = 1;
    for (const auto& [letter, size] : sizes_) largest = std::max(largest, size);
    const int64_t most = largest > 40 ? 3 : largest > 12 ? 20 : 70;
    batch_.push_back(Uniform(random, OneIn(random, 20) ? 0 : 1, most));
    if (OneIn(random, 4)) batch_.push_back(Uniform(random, 1, 3));
    if (OneIn(random, 6)) batch_.clear();
  }

  Buffer Make(std::string_view token) const {
    Buffer buffer;
    const char dtype = token[0];
    buffer.dtype = dtype == 'T'   ? kType<Element>
                   : dtype == 'R' ? kType<Real<Element>>
                   : dtype == 'C' ? kType<std::complex<Real<Element>>>
                                  : kType<int32_t>;
    buffer.dimensions = batch_;
    for (const char letter : token.substr(1)) buffer.dimensions.push_back(sizes_.at(letter));
    return buffer;
  }

 private:
  std::map<char, int64_t> sizes_;
  std::vector<int64_t> batch_;
};

// Whether handlers that know Element alone take calls of it: those of real operands only do not,
// if it is complex.
bool TakesElement(const Target& target) {
  return !kIsComplex<Element> || kSignatures.at(target.name)[0] != 'R';
}

Call RandomCall(Generator& random) {
  Call call;
  size_t chosen = Uniform(random, 0, std::size(kTargets) - 1);
  while (!TakesElement(kTargets[chosen])) chosen = (chosen + 1) % std::size(kTargets);
  const Target& target = kTargets[chosen];
  call.name = target.name;
  for (const char* attribute : target.attributes) {
    if (attribute != nullptr) call.attributes.push_back(attribute);
  }
  std::ranges::sort(call.attributes);
  for (size_t i = 0; i < call.attributes.size(); ++i) call.values[i] = OneIn(random, 2);
  const Shapes shapes(random, call);
  std::string_view rest = kSignatures.at(target.name);
  bool results = false;
  while (!rest.empty()) {
    const std::string_view token = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), token.size() + 1));
    if (token == ">") {
      results = true;
    } else {
      (results ? call.results : call.operands).push_back(shapes.Make(token));
    }
  }
  return call;
}

// Changes one thing: the call may still be good, such as one with a matrix for all.
void Spoil(Generator& random, Call& call) {
  call.good = false;
  auto& buffers = OneIn(random, 2) ? call.operands : call.results;
  Buffer& buffer = buffers[Uniform(random, 0, buffers.size() - 1)];
  auto& dimensions = buffer.dimensions;
  constexpr DataType kTypes[] = {XLA_FFI_DataType_F32,  XLA_FFI_DataType_F64, XLA_FFI_DataType_C64,
                                 XLA_FFI_DataType_C128, XLA_FFI_DataType_S32, XLA_FFI_DataType_S8,
                                 XLA_FFI_DataType_S64};
  switch (Uniform(random, 0, 5)) {
    case 0:
      buffer.dtype = kTypes[Uniform(random, 0, std::size(kTypes) - 1)];
      break;
    case 1:
      if (!dimensions.empty()) dimensions.erase(dimensions.begin());
      break;
    case 2:
      dimensions.insert(dimensions.begin(), Uniform(random, 0, 3));
      break;
    case 3:
      if (call.attributes.empty()) break;
      call.attributes.erase(call.attributes.begin());
      break;
    case 4:
      call.operands.size() > 1 && OneIn(random, 2) ? call.operands.pop_back()
                                                   : call.results.pop_back();
      break;
    default:
      if (dimensions.empty()) break;
      int64_t& size = dimensions[Uniform(random, 0, dimensions.size() - 1)];
      size = std::max<int64_t>(0, size + Uniform(random, -2, 2));
  }
}

std::string Describe(const Call& call) {
  std::string text(call.name);
  const auto add = [&](const std::vector<Buffer>& buffers) {
    for (const Buffer& buffer : buffers) {
      text += " " + std::to_string(buffer.dtype) + "[";
      for (const int64_t size : buffer.dimensions) text += std::to_string(size) + " ";
      text += "]";
    }
  };
  add(call.operands);
  text += " ->";
  add(call.results);
  for (size_t i = 0; i < call.attributes.size(); ++i) {
    text += " " + std::string(call.attributes[i]) + "=" + (call.values[i] ? "1" : "0");
  }
  return text;
}

// Bytes that results lack, for the sanitizers to see.
size_t missing = 0;

// The call at work, and the seed or the file that makes it again.
std::string described, origin;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n%s\n", origin.c_str(), described.c_str(), what.c_str());
#if defined(LINALG_TEST_FUZZER)
  std::abort();  // it keeps the bytes
#else
  std::_Exit(1);
#endif
}

// The handler's error, as "code message", or nothing.
std::string Run(Call& call, XLA_FFI_ExecutionContext* pool) {
  std::vector<XLA_FFI_Buffer> buffers;
  buffers.reserve(call.operands.size() + call.results.size());
  const auto place = [&](std::vector<Buffer>& list) {
    std::vector<void*> pointers;
    for (Buffer& x : list) {
      buffers.push_back({XLA_FFI_Buffer_STRUCT_SIZE, nullptr, x.dtype, x.data,
                         static_cast<int64_t>(x.dimensions.size()), x.dimensions.data()});
      pointers.push_back(&buffers.back());
    }
    return pointers;
  };
  std::vector<void*> operands = place(call.operands), results = place(call.results);
  std::vector<XLA_FFI_ArgType> operand_types(operands.size(), XLA_FFI_ArgType_BUFFER);
  std::vector<XLA_FFI_RetType> result_types(results.size(), XLA_FFI_RetType_BUFFER);

  const size_t count = call.attributes.size();
  std::vector<XLA_FFI_AttrType> attribute_types(count, XLA_FFI_AttrType_SCALAR);
  std::vector<XLA_FFI_ByteSpan> names(count);
  std::vector<XLA_FFI_Scalar> scalars(count);
  std::vector<XLA_FFI_ByteSpan*> name_pointers(count);
  std::vector<void*> scalar_pointers(count);
  for (size_t i = 0; i < count; ++i) {
    names[i] = {call.attributes[i].data(), call.attributes[i].size()};
    scalars[i] = {XLA_FFI_DataType_PRED, &call.values[i]};
    name_pointers[i] = &names[i];
    scalar_pointers[i] = &scalars[i];
  }

  XLA_FFI_CallFrame frame = {};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.api = stand_in::Api();
  frame.ctx = pool;
  frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
  frame.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr, static_cast<int64_t>(operands.size()),
                operand_types.data(), operands.data()};
  frame.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr, static_cast<int64_t>(results.size()),
                result_types.data(), results.data()};
  frame.attrs = {XLA_FFI_Attrs_STRUCT_SIZE,   nullptr,
                 static_cast<int64_t>(count), attribute_types.data(),
                 name_pointers.data(),        scalar_pointers.data()};
  const std::unique_ptr<XLA_FFI_Error> error(HandlerOf(call.name)(&frame));
  if (error == nullptr) return "";
  return std::to_string(error->code) + " " + error->message;
}

// Whether the results are the same, NaN being NaN whatever its bits.
template <class X>
bool SameNumbers(const Buffer& x, const Buffer& y) {
  for (size_t i = 0; i < x.bytes(); i += sizeof(X)) {
    X left, right;
    std::memcpy(&left, x.data + i, sizeof(X));
    std::memcpy(&right, y.data + i, sizeof(X));
    if (std::memcmp(&left, &right, sizeof(X)) != 0 && !(left != left && right != right)) {
      return false;
    }
  }
  return true;
}
bool Same(const Buffer& x, const Buffer& y) {
  switch (x.dtype) {
    case XLA_FFI_DataType_F32:
    case XLA_FFI_DataType_C64:
      return SameNumbers<float>(x, y);
    case XLA_FFI_DataType_F64:
    case XLA_FFI_DataType_C128:
      return SameNumbers<double>(x, y);
    default:
      return SameNumbers<char>(x, y);
  }
}

// Puts a result in the memory of an operand of its type, if there is one.
bool Alias(Generator& random, Call& call) {
  for (Buffer& result : call.results) {
    for (const Buffer& operand : call.operands) {
      if (result.dtype != operand.dtype || result.dimensions != operand.dimensions) continue;
      if (!OneIn(random, 2)) continue;
      result.data = operand.data;
      return true;
    }
  }
  return false;
}

std::vector<Buffer> ResultsOf(Generator& random, Call& call, char before,
                              XLA_FFI_ExecutionContext* pool, std::string* error) {
  for (Buffer& result : call.results) {
    if (result.data != nullptr) continue;  // an operand's
    result.Allocate(random, missing);
    std::memset(result.data, before, result.bytes() - std::min(missing, result.bytes()));
  }
#if !defined(LINALG_TEST_FUZZER)  // which has an alarm of its own
  alarm(60);
#endif
  *error = Run(call, pool);
#if !defined(LINALG_TEST_FUZZER)
  alarm(0);
#endif
  std::vector<Buffer> found;
  for (Buffer& result : call.results) {
    if (!result.memory.IsKept()) Fail("memory beside a result was written");
    found.push_back({result.dtype, result.dimensions, std::move(result.memory),
                     std::exchange(result.data, nullptr)});
  }
  return found;
}

unsigned FloatingPointModes() {
#if defined(__x86_64__)
  return _mm_getcsr() & 0xffc0;
#else
  return 0;
#endif
}

// One call; whether the handler took it.
bool Try(Generator random) {
  static XLA_FFI_ExecutionContext* const many = new XLA_FFI_ExecutionContext(4);
  static XLA_FFI_ExecutionContext* const one = new XLA_FFI_ExecutionContext(1);
  Call call = RandomCall(random);
  if (OneIn(random, 4)) Spoil(random, call);
  described = Describe(call);
  std::vector<std::string> before;
  for (Buffer& operand : call.operands) {
    operand.Allocate(random);
    Fill(random, operand);
    before.emplace_back(operand.data, operand.bytes());
  }
  std::string error, again;
  const unsigned modes = FloatingPointModes();
  const bool aliased = OneIn(random, 8) && Alias(random, call);
  const auto results = ResultsOf(random, call, '\x55', many, &error);
  if (FloatingPointModes() != modes) Fail("other modes of floating point");
  for (const Buffer& operand : call.operands) {
    if (!operand.memory.IsKept()) Fail("memory beside an operand was written");
  }
  if (aliased) return error.empty();
  const auto same = ResultsOf(random, call, '\xaa', one, &again);
  if (error != again) Fail("two errors: " + error + " and " + again);
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] != std::string(call.operands[i].data, call.operands[i].bytes())) {
      Fail("an operand was written");
    }
  }
  if (error.empty()) {
    for (size_t i = 0; i < results.size(); ++i) {
      if (!Same(results[i], same[i])) Fail("result " + std::to_string(i) + " differs");
    }
    return true;
  }
  const bool tall = std::ranges::count(kTall, call.name) > 0;
  if (call.good && !tall) Fail("a good call was refused: " + error);
  // XLA's own words for too few buffers or attributes do not name the target.
  if (!error.starts_with("3 ")) Fail("an error of another kind: " + error);
  return false;
}

#if !defined(LINALG_TEST_MODULE)

void LoadLapack() {
  static void* const library = dlopen(std::getenv("LINALG_TEST_LAPACK"), RTLD_NOW);
  if (library == nullptr) throw std::runtime_error(dlerror());
  const auto fill = [](const std::string& name, void** pointer) {
    for (const char* prefix : {"scipy_", ""}) {
      *pointer = dlsym(library, (prefix + name + "_").c_str());
      if (*pointer != nullptr) return;
    }
    throw std::runtime_error("no " + name);
  };
  lapack::routines<float>.ForEach(fill);
  lapack::routines<double>.ForEach(fill);
  lapack::routines<std::complex<float>>.ForEach(fill);
  lapack::routines<std::complex<double>>.ForEach(fill);
}

#endif

void Start() {
#if !defined(LINALG_TEST_MODULE)
  lapack::SetLoader(LoadLapack);
#endif
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);  // as XLA does
#endif
}

#if !defined(LINALG_TEST_FUZZER)

// How many calls of each target were taken.
std::map<std::string, long> taken;
long calls = 0;

void TryAndCount(Generator random) {
  const bool took = Try(std::move(random));
  taken[described.substr(0, described.find(' '))] += took;
  ++calls;
}

void TryFiles(int count, char** paths) {
  for (int i = 0; i < count; ++i) {
    origin = paths[i];
    std::ifstream file(origin, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    if (!file) Fail("it cannot be read");
    TryAndCount(Generator(std::string_view(bytes)));
  }
}

void TrySeeds(uint64_t seed, int seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  for (; std::chrono::steady_clock::now() < end; ++seed) {
    origin = "seed " + std::to_string(seed);
    TryAndCount(Generator(seed));
  }
}

// What the arguments say; what they are is at the head of this file.
int TryAll(int count, char** arguments) {
  std::signal(SIGALRM, [](int) { Fail("no end of it"); });
  std::signal(SIGABRT, [](int) { Fail("a sanitizer has seen it"); });
  Start();
  if (std::strcmp(arguments[1], "--corpus") == 0) {
    TryFiles(count - 2, arguments + 2);
  } else {
    missing = count > 3 ? 1 : 0;
    TrySeeds(std::strtoull(arguments[2], nullptr, 10), std::atoi(arguments[1]));
  }
  for (const Target& target : kTargets) {
    if (TakesElement(target) && taken[std::string(target.name)] == 0) {
      std::printf("never %s\n", target.name.data());
    }
  }
  std::printf("%ld calls\ndone\n", calls);
  std::fflush(stdout);
  return 0;
}

#endif

}  // namespace
}  // namespace linalg

#if defined(LINALG_TEST_FUZZER)

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  linalg::Start();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  linalg::Try(linalg::Generator(std::string_view(reinterpret_cast<const char*>(data), size)));
  return 0;
}

#elif defined(LINALG_TEST_MODULE)

// To be called with each of the module's, and then TryModule.
extern "C" void AddHandler(const char* name, XLA_FFI_Handler* handler) {
  linalg::handlers[name] = handler;
}

extern "C" int TryModule(int count, char** arguments) {
  for (const int number : {SIGSEGV, SIGBUS}) {
    std::signal(number, [](int) { linalg::Fail("memory was touched that is none of its own"); });
  }
  for (const linalg::Target& target : linalg::kTargets) {
    if (linalg::HandlerOf(target.name) != nullptr) continue;
    std::fprintf(stderr, "the module is of other sources: it has no %s\n", target.name.data());
    return 1;
  }
  return linalg::TryAll(count, arguments);
}

#else

int main(int count, char** arguments) { return linalg::TryAll(count, arguments); }

#endif
