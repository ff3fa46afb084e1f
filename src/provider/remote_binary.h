// RemoteBinary: puts this very program on other machines, as ~/.rubato/bin/rubato-HASH, so that they need nothing but
// sshd; `rubato` beside it is a link to the one that was put last, for people. It is compressed once, sent only where
// it is missing, and checked there before it gets its name.
#pragma once

#include <string>

#include "core/channel.h"
#include "provider/command_runner.h"
#include "provider/run_here.h"
#include "world/world.h"

namespace rubato::provider {

class RemoteBinary {
 public:
  // `program`: the file; `cache`: a folder for the compressed forms of it.
  RemoteBinary(World& world, RunnerSettings settings, std::string program, std::string cache);

  struct Put {
    std::string path;  // on the machine, absolute
    bool sent = false;
  };
  // May be called for many machines at once. Throws kUsage when the machine cannot run it, kFailed when it has no
  // room for it, and what run() throws.
  Task<Put> put(CommandRunner& runner, Duration timeout);

  // Of the program, 64 digits.
  Task<std::string> hash();

  // What `uname -m` says where it runs.
  static std::string_view machine();

 private:
  struct Busy {
    explicit Busy(RemoteBinary& one) : binary(one) { binary.busy_ = true; }
    ~Busy() {
      binary.busy_ = false;
      binary.changed_.notify();
    }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;
    RemoteBinary& binary;
  };
  Task<void> turn();
  enum class Form { kZstd, kGzip, kRaw };
  Task<std::string> file_of(Form form);
  Task<void> make_file(Form form, std::string path);
  Task<void> pack_with_zstd(std::string path);

  World& world_;
  const RunnerSettings settings_;
  const std::string program_, cache_;
  std::string hash_;
  bool busy_ = false;  // one task reads and packs the program; the others wait for what it makes
  Event changed_;
};

}  // namespace rubato::provider
