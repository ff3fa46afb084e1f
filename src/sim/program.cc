#include "sim/program.h"

namespace rubato::sim {

void SimConsole::out(std::string_view text) {
  if (life_.running) out_ += text;
}

void SimConsole::err(std::string_view text) {
  if (life_.running) err_ += text;
}

SimProgram::SimProgram(const ProgramHost& host, const MachineFacts& facts, std::string name, Main main)
    : host_(host),
      facts_(facts),
      name_(std::move(name)),
      main_(std::move(main)),
      loop_(host.simulator, host.clock),
      network_(host.network, host.node, loop_, life_),
      files_(host.disk, life_),
      console_(life_),
      random_(host.simulator.random().fork()),
      processes_(host.workers, ProcessHost{host.node, loop_, host.disk, console_, life_}),
      store_(host.store, host.node, loop_),
      world_{loop_, network_, processes_, files_, console_, random_, facts_},
      scope_(loop_) {}

SimProgram::~SimProgram() { destroy(); }

void SimProgram::start() {
  host_.simulator.record(EventKind::kProgram, host_.node.id, hash_of(name_));
  scope_.spawn(run(*this));
}

Task<void> SimProgram::run(SimProgram& self) {
  int code = 0;
  try {
    Task<int> main = self.main_(self);
    code = co_await std::move(main);
  } catch (const Error& error) {
    self.console_.err(render(error));
    code = rubato::exit_code(error);
  }
  self.finished(code);
}

void SimProgram::finished(int code) {
  exit_code_ = code;
  life_.running = false;
  host_.simulator.record(EventKind::kProgram, host_.node.id, static_cast<uint64_t>(code) << 1);
}

void SimProgram::kill() {
  if (!running()) return;
  host_.simulator.mark("program.kill");
  host_.simulator.record(EventKind::kProgram, host_.node.id, hash_of(name_) | 1);
  destroy();
}

void SimProgram::destroy() {
  life_.running = false;
  scope_.cancel();
}

void SimProgram::stop() {
  if (!running() || std::exchange(stopped_, true)) return;
  host_.simulator.mark("program.stop");
  host_.simulator.record(EventKind::kProgram, host_.node.id, 2);
  loop_.hold();
}

void SimProgram::resume() {
  if (!std::exchange(stopped_, false)) return;
  host_.simulator.record(EventKind::kProgram, host_.node.id, 4);
  loop_.release(host_.simulator.random().chance(0.5));
}

}  // namespace rubato::sim
