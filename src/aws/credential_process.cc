#include "aws/credential_process.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/text.h"

namespace rubato::aws {
namespace {

constexpr Duration kProcessMax = 60s;
constexpr size_t kPrintedMax = size_t{64} << 10;
constexpr size_t kSaidMax = 300;  // of what it complains about

Error failed(const rest::Sourced& program, const std::string& why) {
  return Error(ErrorCode::kAuth, fmt::format("its credential_process gave no credentials: {}", why), program.origin,
               fmt::format("try it yourself: {}", program.text));
}

}  // namespace

Task<std::string> run_credential_process(World& world, rest::Environment env, rest::Sourced program) {
  SpawnSpec spec;
  spec.argv = {"/bin/sh", "-c", program.text};
  for (const auto& [name, value] : env) spec.env.push_back(name + "=" + value);
  spec.in = InputSource::kNull;
  spec.out.kind = spec.err.kind = OutputTarget::Kind::kPipe;
  const std::unique_ptr<Process> process = world.processes.spawn(spec);
  process->end_by(world.clock.now() + kProcessMax);
  std::string printed, said;
  while (true) {
    const auto chunk = co_await process->output().pop();
    if (!chunk) break;
    (chunk->is_stderr ? said : printed) += chunk->bytes;
    if (printed.size() + said.size() > kPrintedMax) throw failed(program, "it prints without an end");
  }
  const ExitStatus status = co_await process->wait();
  if (!status.ok()) {
    const std::string text(trim(said));
    throw failed(program, text.empty() ? describe(status) : fmt::format("{}: {}", describe(status),
                                                                        text.substr(0, kSaidMax)));
  }
  co_return printed;
}

}  // namespace rubato::aws
