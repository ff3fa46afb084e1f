#include "agent/direct_outlets.h"

#include <functional>

namespace rubato::agent {

namespace {

class DirectOutlet final : public Outlet {
 public:
  using Write = std::function<void(std::string_view)>;
  explicit DirectOutlet(Write write) : write_(std::move(write)) {}

  void write(std::string_view bytes) override {
    if (!failure_.empty()) return;
    try {
      write_(bytes);
    } catch (const Error& error) {
      failure_ = error.message;
    }
  }
  size_t pending() const override { return 0; }
  const std::string& failure() const override { return failure_; }
  Task<bool> drained(size_t, Instant) override { co_return true; }

 private:
  Write write_;
  std::string failure_;
};

class DirectOutlets final : public Outlets {
 public:
  explicit DirectOutlets(World& world)
      : world_(world),
        out_([&world](std::string_view text) { world.console.out(text); }),
        err_([&world](std::string_view text) { world.console.err(text); }) {}

  Outlet& out() override { return out_; }
  Outlet& err() override { return err_; }
  std::unique_ptr<Outlet> open(const std::string& path) override {
    const std::shared_ptr<Appender> file = world_.files.open_append(path);
    return std::make_unique<DirectOutlet>([file](std::string_view bytes) { file->append(bytes); });
  }

 private:
  World& world_;
  DirectOutlet out_, err_;
};

}  // namespace

std::unique_ptr<Outlets> make_direct_outlets(World& world) { return std::make_unique<DirectOutlets>(world); }

}  // namespace rubato::agent
