// Calls the handlers as XLA does, on operands of random shapes, layouts, attributes and bit
// patterns. Some calls are good and some are spoilt in one respect. test_sanitized.py compiles this
// with sanitizers and LINALG_TEST_ELEMENT. Each operand and result has its own memory, with the
// alignment of its elements and no more. Besides clean sanitizers, this checks that:
//
// - a good call has no error, and a bad call has INVALID_ARGUMENT with the target's name;
// - operands keep their bits, and the calling thread keeps its floating-point modes;
// - results do not depend on the previous contents of their memory, nor on the number of threads;
// - each call ends within a minute.
//
// A program may put a result of any handler in the memory of an operand. Such a call only has to
// end, because it may read elements that it has already overwritten.
//
// The first argument is the number of seconds to run, and the second is the seed. A third argument
// asks for a mistake that must be seen. --overflow leaves out the last byte of each result, and
// --race makes two threads call with the same results. Alternatively, --corpus is followed by the
// files of a corpus. libFuzzer supplies the bytes of the calls if LINALG_TEST_FUZZER is defined.
// LINALG_TEST_LAPACK names the shared library with LAPACK. LINALG_FUZZ_TARGETS has words, one of
// which is in the name of each target that is called.
//
// If LINALG_TEST_MODULE is defined, this is a library. It calls the handlers of an installed module
// that Python has loaded: test_random_calls.py. These handlers have no sanitizer, so each operand
// and result has its own pages between guard pages.
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

// Mistakes for the sanitizers to see: bytes that results lack, and whether two threads write them.
size_t missing = 0;
bool races = false;

// The current call, and the seed or file that reproduces it.
std::string described, origin;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n%s\n", origin.c_str(), described.c_str(), what.c_str());
#if defined(LINALG_TEST_FUZZER)
  std::abort();  // libFuzzer saves the input
#else
  std::_Exit(1);
#endif
}

// The handler's error as "code message", or an empty string.
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
    // A bool is the first byte of a number that is 0 or 1.
    scalars[i] = {IsIndex(call.attributes[i]) ? XLA_FFI_DataType_S64 : XLA_FFI_DataType_PRED,
                  &call.values[i]};
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

// Whether the results are equal. All NaNs are equal, with any bits.
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
    if (result.data != nullptr) continue;  // memory of an operand
    result.Allocate(random, missing);
    std::memset(result.data, before, result.bytes() - std::min(missing, result.bytes()));
  }
#if !defined(LINALG_TEST_FUZZER)  // libFuzzer has its own alarm
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

// Makes one call; returns whether the handler accepted it.
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
  // XLA's message for too few buffers or attributes does not name the target.
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
  _mm_setcsr(_mm_getcsr() | 0x8040);  // XLA flushes subnormals to zero
#endif
}

#if !defined(LINALG_TEST_FUZZER)

// How many calls of each target were accepted.
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

// The targets of which no call was accepted.
std::vector<std::string> NeverTaken() {
  std::vector<std::string> names;
  for (const Target& target : kTargets) {
    std::string name(target.name);
    if (IsCalled(target) && taken[name] == 0) names.push_back(std::move(name));
  }
  return names;
}

// Goes on for two minutes, since a busy machine makes few calls, where a target is not reached yet.
void TrySeeds(uint64_t seed, int seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  const auto latest = end + std::chrono::minutes(2);
  for (; Clock::now() < end || (Clock::now() < latest && !NeverTaken().empty()); ++seed) {
    origin = "seed " + std::to_string(seed);
    TryAndCount(Generator(seed));
  }
}

// Runs the calls that the arguments ask for; the top of this file describes them.
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
  for (const std::string& name : NeverTaken()) std::printf("never %s\n", name.c_str());
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

// Call this with each handler of the module, and then call TryModule.
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
