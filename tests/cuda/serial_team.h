// A team with the interface of kernels/team/team.h whose threads run one after another.
#pragma once

#include <utility>
#include <vector>

#include "kernels/team/team.h"

namespace linalg::team {

// Sums as a warp does by shuffles, and then warp after warp.
template <class V>
V SumAsWarps(std::vector<V> x) {
  const int size = static_cast<int>(x.size()), warp = size < 32 ? size : 32;
  for (int offset = warp / 2; offset > 0; offset /= 2) {
    std::vector<V> y(x);
    for (int i = 0; i < size; ++i) y[i] = x[i] + x[i ^ offset];
    x = y;
  }
  V sum = x[0];
  for (int i = warp; i < size; i += warp) sum = sum + x[i];
  return sum;
}

template <class V>
Candidate<V> BestOf(const std::vector<Candidate<V>>& found) {
  Candidate<V> best = found[0];
  for (const auto& x : found) best = best.Better(x);
  return best;
}

enum class Order : int { kForward, kBackward, kScrambled };

class SerialTeam {
 public:
  SerialTeam(int size, Order order) : size_(size), order_(order) {}

  int size() const { return size_; }

  // One X per thread.
  template <class X>
  class PerThread {
   public:
    explicit PerThread(const SerialTeam& team) : x_(team.size()) {}
    X& operator[](int thread) { return x_[thread]; }

   private:
    std::vector<X> x_;
  };

  // Runs body(team), whose result is the same on all threads.
  template <class Body>
  int Run(Body&& body) const {
    return body(*this);
  }

  template <class Body>
  void Phase(Body&& body) const {
    for (int i = 0; i < size_; ++i) body(ThreadAt(i));
  }

  template <class Body>
  void Each(Body&& body) const {
    Phase(body);
  }

  template <class V, class Body>
  V From(int thread, Body&& body) const {
    return body(thread);
  }

  template <class V, class Body>
  V Sum(Body&& body) const {
    std::vector<V> x(size_);
    Phase([&](int thread) { x[thread] = body(thread); });
    return SumAsWarps(std::move(x));
  }

  template <class V, class Body>
  Candidate<V> Best(Body&& body) const {
    std::vector<Candidate<V>> found(size_);
    Phase([&](int thread) { found[thread] = body(thread); });
    return BestOf(found);
  }

  template <class Body>
  bool Any(Body&& body) const {
    bool any = false;
    Phase([&](int thread) { any |= body(thread); });
    return any;
  }

 private:
  int ThreadAt(int i) const {
    if (order_ == Order::kForward) return i;
    if (order_ == Order::kBackward) return size_ - 1 - i;
    return i % 2 == 0 ? i / 2 : size_ - 1 - i / 2;  // from both ends
  }

  int size_;
  Order order_;
};

}  // namespace linalg::team
