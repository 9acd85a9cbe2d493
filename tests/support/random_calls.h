// Random calls of every target with elements of type LINALG_TEST_ELEMENT: good ones, and ones
// spoilt in one respect.
#pragma once

#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/batch.h"
#include "kernels/handlers.h"
#include "tests/support/random_operands.h"

namespace linalg {

using Element = LINALG_TEST_ELEMENT;

// Targets that need at least as many rows as columns.
inline constexpr std::string_view kTall[] = {"linalg_householder_product", "linalg_qr_jvp",
                                             "linalg_qr_vjp"};

template <class T>
constexpr DataType kType = static_cast<DataType>(kDtype<T>);

struct Call {
  std::string_view name;
  std::vector<Buffer> operands, results;
  std::vector<std::string_view> attributes;
  std::array<int64_t, 8> values = {};
  bool good = true;
};

inline int64_t RandomSize(Generator& random) {
  const int64_t most = OneIn(random, 12) ? 90 : OneIn(random, 4) ? 34 : 9;
  return Uniform(random, OneIn(random, 20) ? 0 : 1, most);
}

class Shapes {
 public:
  Shapes(Generator& random, const Call& call) {
    // The work of a recursion grows with the product of all sizes.
    const bool recursion = call.name.starts_with("linalg_kalman");
    const int64_t most_of_each = recursion ? 17 : 90;
    for (const char letter : {'m', 'n', 'k'}) {
      sizes_[letter] = std::min(RandomSize(random), most_of_each);
    }
    if (recursion) sizes_['k'] = std::max<int64_t>(sizes_['k'], 1);  // steps
    if (std::ranges::count(kTall, call.name) > 0 && !OneIn(random, 10)) {
      sizes_['m'] = std::max(sizes_['m'], sizes_['n']);
    }
    const int64_t m = sizes_['m'], n = sizes_['n'];
    if (std::ranges::count(call.attributes, "count") > 0) {
      sizes_['k'] = std::min({sizes_['k'], m, n});
    }
    sizes_['X'] = std::min(m, n);
    const bool full = OneIn(random, 2);
    sizes_['Q'] = full ? m : sizes_['X'];
    sizes_['V'] = full ? n : sizes_['X'];
    sizes_['H'] = std::max<int64_t>(m - 1, 0);
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

  // The value of an attribute that counts.
  int64_t Index(Generator& random, std::string_view attribute) const {
    const int64_t count = sizes_.at('k'), most = std::min(sizes_.at('m'), sizes_.at('n')) - count;
    return attribute == "count" ? count : Uniform(random, 0, most);
  }

  Buffer Make(std::string_view token) const {
    Buffer buffer;
    const char dtype = token[0];
    buffer.dtype = dtype == 'T'   ? kType<Element>
                   : dtype == 'R' ? kType<Real<Element>>
                   : dtype == 'C' ? kType<std::complex<Real<Element>>>
                                  : kType<int32_t>;
    const bool batched = !token.ends_with('!');
    if (batched) buffer.dimensions = batch_;
    for (const char letter : token.substr(1, token.size() - (batched ? 1 : 2))) {
      buffer.dimensions.push_back(sizes_.at(letter));
    }
    return buffer;
  }

 private:
  std::map<char, int64_t> sizes_;
  std::vector<int64_t> batch_;
};

// Whether LINALG_FUZZ_TARGETS, words with spaces between, has a word that is in the target's name.
// Without that variable all targets are named.
inline bool IsNamed(const Target& target) {
  static const char* const words = std::getenv("LINALG_FUZZ_TARGETS");
  if (words == nullptr) return true;
  std::istringstream stream(words);
  std::string word;
  while (stream >> word) {
    if (std::string_view(target.name).find(word) != std::string_view::npos) return true;
  }
  return false;
}

// Whether calls of a target are made. Handlers that know Element alone do not take it if it is
// complex and all of their operands are real.
inline bool IsCalled(const Target& target) {
  return IsNamed(target) && (!kIsComplex<Element> || target.signature[0] != 'R');
}

// The target of a number: that of its row in the table, or one of those that are named.
inline const Target& TargetOf(size_t number) {
  static const std::vector<const Target*> called = [] {
    std::vector<const Target*> found;
    for (const Target& target : kTargets) {
      if (IsCalled(target)) found.push_back(&target);
    }
    if (found.empty()) throw std::invalid_argument("LINALG_FUZZ_TARGETS names no target");
    return found;
  }();
  if (IsCalled(kTargets[number])) return kTargets[number];
  return *called[number % called.size()];
}

inline Call RandomCall(Generator& random) {
  Call call;
  const Target& target = TargetOf(Uniform(random, 0, std::size(kTargets) - 1));
  call.name = target.name;
  for (const char* attribute : target.attributes) {
    if (attribute != nullptr) call.attributes.push_back(attribute);
  }
  std::ranges::sort(call.attributes);
  for (size_t i = 0; i < call.attributes.size(); ++i) call.values[i] = OneIn(random, 2);
  const Shapes shapes(random, call);
  for (size_t i = 0; i < call.attributes.size(); ++i) {
    if (IsIndex(call.attributes[i])) call.values[i] = shapes.Index(random, call.attributes[i]);
  }
  std::string_view rest = target.signature;
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
inline void Spoil(Generator& random, Call& call) {
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

inline std::string Describe(const Call& call) {
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
    text += " " + std::string(call.attributes[i]) + "=" + std::to_string(call.values[i]);
  }
  return text;
}

}  // namespace linalg
