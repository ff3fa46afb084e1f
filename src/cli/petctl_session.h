// What the commands for jobs on Auto Scaling groups have in common: a client, the job's name, where its objects are.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "aws/credentials.h"
#include "cli/aws_command.h"
#include "cli/command_world.h"
#include "client/session.h"
#include "petctl/job_end.h"
#include "petctl/job_store.h"
#include "petctl/specs.h"

namespace rubato::cli {

class PetctlSession {
 public:
  PetctlSession(const ParsedCommand& parsed, const Shell& shell);
  virtual ~PetctlSession() = default;

 protected:
  // --name, or the first positional. Throws a usage Error where there is none, or it cannot be one.
  std::string job_name(std::string_view usage) const;
  Task<void> open();
  petctl::Specs read_specs() const;  // of --specs-file

  // Where a job's objects are, where nothing in EC2 says it: by the specs file, or by what this machine has noted when
  // it started the job. Empty: unknown.
  std::string known_place(const std::string& job);
  void remember_place(const std::string& job, const std::string& place);

  petctl::OnProgress progress_printer() const;
  Task<petctl::JobView> view_of(std::string job);

  const ParsedCommand& parsed_;
  const Shell& shell_;
  CommandWorld command_;
  std::unique_ptr<aws::Client> client_;
  std::map<std::string, petctl::KnownReports> known_reports_;  // by the job's name

 private:
  std::string note_path(const std::string& job) const;
};

// A whole number of a flag, from `least` on. Throws a usage Error.
int whole_number(const Given& given, int least);

}  // namespace rubato::cli
