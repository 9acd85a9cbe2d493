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
// Calls go on for as many seconds as the first argument says, and the second is their seed. A third
// is a mistake which is to be seen: with --overflow results are short of their last byte, with
// --race two threads make a call with the same ones. Or the arguments are a file of a corpus each,
// after --corpus. With LINALG_TEST_FUZZER defined, libFuzzer has the calls' bytes.
// LAPACK is in the shared library that LINALG_TEST_LAPACK names.
//
// With LINALG_TEST_MODULE defined this is a library, which calls the handlers of a module that
// Python has loaded, as it is installed: test_random_calls.py. No sanitizer is in these, and each
// operand and result has pages of its own, between pages that nobody may touch.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cpu/lapack.h"
#include "kernels/handlers.h"
#include "tests/support/random_calls.h"
#include "tests/support/stand_in_xla.h"

#if !defined(LINALG_TEST_MODULE)
unsigned std::thread::hardware_concurrency() noexcept { return 4; }
#endif

namespace linalg {
namespace {

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

// For the sanitizers to see: bytes that results lack, and whether two threads write them.
size_t missing = 0;
bool races = false;

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
  std::thread other;
  if (races) other = std::thread([&] { Run(call, pool); });
  *error = Run(call, pool);
  if (races) other.join();
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
    const std::string_view mistake = count > 3 ? arguments[3] : "";
    missing = mistake == "--overflow" ? 1 : 0;
    races = mistake == "--race";
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
