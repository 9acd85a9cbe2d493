// A team of concurrent threads with the interface of kernels/team/team.h. A sanitizer then finds
// memory that two threads access without a barrier in between.
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

// One thread's view of its team.
class ThreadTeam {
 public:
  // Shared by the threads: a barrier, and two boards for values that they exchange.
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
  // Combines the results of all threads' bodies. It uses one barrier, the least that callers may
  // rely on. A thread that has read one of the two boards writes to the other one next.
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

// Starts the threads of a team.
class Threads {
 public:
  explicit Threads(int size) : size_(size) {}

  int size() const { return size_; }

  // Runs body(team) on each thread with its own view of the team, and returns their common result.
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
