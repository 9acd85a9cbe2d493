// Compiles each kernel at its first launch. A suite runs few kernels, and compiling all takes
// longer than the suite. This library's folder has kernels.txt and the sources of translate.py, and
// build.py's compile command.
#include "tests/ptx_emulator/kernels.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <stdexcept>

namespace ptx {
namespace {

std::string Folder() {
  Dl_info info;
  dladdr(reinterpret_cast<void*>(&FindKernel), &info);
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/'));
}

std::map<std::string, std::string> Files(const std::string& folder) {
  std::map<std::string, std::string> files;
  std::ifstream list(folder + "/kernels.txt");
  for (std::string kernel, file; list >> kernel >> file;) files[kernel] = file;
  return files;
}

const Kernel* Load(const std::string& folder, const std::string& file) {
  const std::string library = folder + "/" + file + ".so";
  // Another process may have made the library meanwhile. It is identical.
  if (access(library.c_str(), R_OK) != 0) {
    const std::string command = "sh '" + folder + "/compile' '" + file + "'";
    if (std::system(command.c_str()) != 0) throw std::runtime_error(command + " failed");
  }
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw std::runtime_error(dlerror());
  return static_cast<const Kernel*>(dlsym(handle, "kernel"));
}

}  // namespace

const Kernel& FindKernel(const std::string& name) {
  static const std::string folder = Folder();
  static const auto files = Files(folder);
  static std::map<std::string, const Kernel*> loaded;
  const Kernel*& kernel = loaded[name];
  if (kernel == nullptr) {
    const auto found = files.find(name);
    if (found == files.end()) throw std::runtime_error("no PTX has the kernel " + name);
    kernel = Load(folder, found->second);
  }
  return *kernel;
}

}  // namespace ptx
