// Objects that the chunks of a batch use one after another.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace linalg {

// Objects that take long to make, such as memory that is new to the process. A chunk takes an
// object that an earlier chunk has left, so there are never more objects than threads.
template <class X>
class ObjectPool {
 public:
  // Calls body(x) with an object that make() has made.
  template <class Make, class Body>
  void With(Make&& make, Body&& body) {
    std::unique_ptr<X> x = Take();
    if (x == nullptr) x.reset(new X(make()));  // X may not be movable
    body(*x);
    const std::lock_guard<std::mutex> lock(mutex_);
    objects_.push_back(std::move(x));
  }

 private:
  std::unique_ptr<X> Take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (objects_.empty()) return nullptr;
    std::unique_ptr<X> x = std::move(objects_.back());
    objects_.pop_back();
    return x;
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<X>> objects_;
};

}  // namespace linalg
