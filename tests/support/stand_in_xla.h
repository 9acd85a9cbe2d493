// A stand-in for the parts of XLA that handlers call: errors and a pool of threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "xla/ffi/api/ffi.h"

struct XLA_FFI_Error {
  XLA_FFI_Error_Code code;
  std::string message;
};

// The pool, behind the interface in which XLA hands it to handlers.
struct XLA_FFI_ExecutionContext {
 public:
  explicit XLA_FFI_ExecutionContext(int count) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this] { Work(); });
    }
  }
  ~XLA_FFI_ExecutionContext() {
    Change([this] { ends_ = true; });
    for (std::thread& thread : threads_) thread.join();
  }

  // Tasks wait until Pause(false).
  void Pause(bool paused) {
    Change([=, this] { paused_ = paused; });
  }
  // Whether tasks are taken at all.
  void Refuse(bool refuses) {
    Change([=, this] { refuses_ = refuses; });
  }

  bool Schedule(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    if (refuses_) return false;
    tasks_.push_back(std::move(task));
    changed_.notify_one();
    return true;
  }
  void WaitUntilIdle() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return tasks_.empty() && busy_ == 0; });
  }
  int64_t size() const { return static_cast<int64_t>(threads_.size()); }

 private:
  template <class F>
  void Change(F&& change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }

  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ends_ || (!paused_ && !tasks_.empty()); });
      if (tasks_.empty() || paused_) return;
      {
        const std::function<void()> task = std::move(tasks_.front());
        tasks_.pop_front();
        ++busy_;
        lock.unlock();
        task();
        lock.lock();
        --busy_;
      }
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
  int busy_ = 0;
  bool ends_ = false, paused_ = false, refuses_ = false;
};

namespace stand_in {

inline const XLA_FFI_Api* Api() {
  static const XLA_FFI_Api api = [] {
    XLA_FFI_Api made = {};
    made.struct_size = XLA_FFI_Api_STRUCT_SIZE;
    made.api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR,
                        XLA_FFI_API_MINOR};
    made.XLA_FFI_Error_Create = [](XLA_FFI_Error_Create_Args* args) {
      return new XLA_FFI_Error{args->errc, args->message};
    };
    made.XLA_FFI_Error_GetMessage = [](XLA_FFI_Error_GetMessage_Args* args) {
      args->message = args->error->message.c_str();
    };
    made.XLA_FFI_Error_Destroy = [](XLA_FFI_Error_Destroy_Args* args) { delete args->error; };
    made.XLA_FFI_ThreadPool_Schedule = [](XLA_FFI_ThreadPool_Schedule_Args* args) {
      const auto task = [run = args->task, data = args->data] { run(data); };
      return args->ctx->Schedule(task)
                 ? nullptr
                 : new XLA_FFI_Error{XLA_FFI_Error_Code_UNAVAILABLE, "no pool"};
    };
    made.XLA_FFI_ThreadPool_NumThreads = [](XLA_FFI_ThreadPool_NumThreads_Args* args) {
      *args->num_threads = args->ctx->size();
      return static_cast<XLA_FFI_Error*>(nullptr);
    };
    return made;
  }();
  return &api;
}

}  // namespace stand_in
