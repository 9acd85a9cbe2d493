// A team of threads, as kernels/team/team.h asks for, that run at the same time: for a sanitizer
// that finds what two of them touch without a barrier in between.
#pragma once

#include <barrier>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <vector>

#include "tests/cuda/serial_team.h"

namespace linalg::team {

// What a thread knows of its team.
class ThreadTeam {
 public:
  // Where threads meet: a barrier, and two boards for what they bring.
  struct Meeting {
    explicit Meeting(int size) : size(size), barrier(size), boards{Board(size), Board(size)} {}

    struct Bytes {
      std::byte bytes[16];
    };
    using Board = std::vector<Bytes>;

    int size;
    std::barrier<> barrier;
    Board boards[2];
  };

  template <class X>
  class PerThread {
   public:
    explicit PerThread(const ThreadTeam&) {}
    X& operator[](int) { return x_; }

   private:
    X x_;
  };

  ThreadTeam(Meeting& meeting, int thread) : meeting_(meeting), thread_(thread) {}

  int size() const { return meeting_.size; }

  template <class Body>
  void Phase(Body&& body) const {
    body(thread_);
    meeting_.barrier.arrive_and_wait();
  }

  template <class Body>
  void Each(Body&& body) const {
    body(thread_);
  }

  template <class V, class Body>
  V From(int thread, Body&& body) const {
    return Gather<V>(body)[thread];
  }

  template <class V, class Body>
  V Sum(Body&& body) const {
    return SumAsWarps(Gather<V>(body));
  }

  template <class V, class Body>
  Candidate<V> Best(Body&& body) const {
    return BestOf(Gather<Candidate<V>>(body));
  }

  template <class Body>
  bool Any(Body&& body) const {
    bool any = false;
    for (const char found : Gather<char>(body)) any |= found != 0;
    return any;
  }

 private:
  // What every thread's body returns. One barrier, the least that there is to rely on: whoever has
  // read one of the two boards brings to the other one next.
  template <class X, class Body>
  std::vector<X> Gather(Body&& body) const {
    static_assert(sizeof(X) <= sizeof(Meeting::Bytes) && std::is_trivially_copyable_v<X>);
    auto& board = meeting_.boards[turn_];
    turn_ = 1 - turn_;
    Phase([&](int thread) {
      const X x = body(thread);
      std::memcpy(&board[thread], &x, sizeof(X));
    });
    std::vector<X> gathered(size());
    for (int i = 0; i < size(); ++i) std::memcpy(&gathered[i], &board[i], sizeof(X));
    return gathered;
  }

  Meeting& meeting_;
  int thread_;
  mutable int turn_ = 0;
};

// The threads of a team, to be started.
class Threads {
 public:
  explicit Threads(int size) : size_(size) {}

  int size() const { return size_; }

  // body(team) by each thread with its own view of the team; what all of them return.
  template <class Body>
  int Run(Body&& body) const {
    ThreadTeam::Meeting meeting(size_);
    std::vector<int> results(size_);
    std::vector<std::thread> threads;
    for (int i = 0; i < size_; ++i) {
      threads.emplace_back([&, i] { results[i] = body(ThreadTeam(meeting, i)); });
    }
    for (auto& thread : threads) thread.join();
    for (const int result : results) {
      if (result != results[0]) throw std::logic_error("threads of a team do not agree");
    }
    return results[0];
  }

 private:
  int size_;
};

}  // namespace linalg::team
