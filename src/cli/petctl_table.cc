// The tables of `rubato petctl …` and of `rubato aws`'s verbs for jobs.
#include <algorithm>

#include "cli/common_flags.h"
#include "cli/petctl_command.h"

namespace rubato::cli {
namespace {

constexpr auto kValue = FlagKind::kValue;
constexpr std::string_view kJob = "The job";
constexpr std::string_view kHosts = "Its hosts";
constexpr std::string_view kEnd = "Its end";
constexpr std::string_view kAccount = "Account";

std::vector<Flag> account_flags() {
  return {{.name = "profile",
           .kind = kValue,
           .value = "NAME",
           .help = "a profile of ~/.aws, before credentials in variables",
           .group = kAccount},
          {.name = "region",
           .kind = kValue,
           .value = "NAME",
           .help = "instead of AWS_REGION and the profile's",
           .group = kAccount},
          {.name = "verbose", .help = "petctl's, without effect", .hidden = true}};
}

Flag name_flag(std::string_view help) {
  return {.name = "name", .short_name = 'n', .kind = kValue, .value = "NAME", .help = help, .group = kJob};
}

Flag specs_flag(std::string_view help) {
  return {.name = "specs-file", .kind = kValue, .value = "FILE", .help = help, .group = kJob};
}

std::vector<Flag> job_flags() {
  return {name_flag("name of the job"),
          {.name = "size",
           .short_name = 's',
           .kind = kValue,
           .value = "N",
           .help = "worker hosts to start with",
           .group = kJob},
          {.name = "min-size",
           .kind = kValue,
           .value = "N",
           .help = "fewer than these do not train",
           .group = kJob,
           .default_text = "the size"},
          {.name = "max-size",
           .kind = kValue,
           .value = "N",
           .help = "no more than these are let in",
           .group = kJob,
           .default_text = "the size"},
          {.name = "nproc-per-node",
           .kind = kValue,
           .value = "N|auto|gpu|cpu",
           .help = "workers on each host",
           .group = kJob,
           .default_text = "each GPU, else 1"},
          {.name = "max-restarts",
           .kind = kValue,
           .value = "N",
           .help = "failures of workers that the job survives",
           .group = kJob,
           .default_text = "3"},
          {.name = "no-upload", .help = "the script is in the container, or on the host, already", .group = kJob},
          {.name = "instance-type",
           .kind = kValue,
           .value = "TYPE",
           .help = "of the worker hosts, before the specs file's",
           .group = kHosts}};
}

std::vector<Flag> end_flags() {
  return {{.name = "detach",
           .short_name = 'd',
           .help = "return when the groups are made; do not wait for the end",
           .group = kEnd},
          {.name = "keep", .help = "keep groups and hosts when the job has ended", .group = kEnd},
          {.name = "dry-run", .help = "print the plan and the user data; make nothing", .group = kEnd}};
}

std::vector<Flag> host_flags() {
  return {
      {.name = "s3",
       .kind = kValue,
       .value = "s3://BUCKET/PREFIX",
       .help = "where scripts, logs and status go",
       .group = kHosts},
      {.name = "accelerator",
       .kind = kValue,
       .value = "none|gpu",
       .help = "chooses the image",
       .group = kHosts,
       .default_text = "gpu for g and p types",
       .choices = "none gpu"},
      {.name = "docker-image", .kind = kValue, .value = "IMAGE", .help = "run in this container", .group = kHosts},
      {.name = "image-id", .kind = kValue, .value = "AMI", .help = "another image of the hosts", .group = kHosts},
      {.name = "subnet",
       .kind = FlagKind::kRepeat,
       .value = "ID",
       .help = "where hosts are made",
       .group = kHosts,
       .default_text = "the default VPC's"},
      {.name = "security-group",
       .kind = FlagKind::kRepeat,
       .value = "ID",
       .help = "of the hosts",
       .group = kHosts,
       .default_text = "one is made"},
      {.name = "instance-role",
       .kind = kValue,
       .value = "PROFILE",
       .help = "instance profile of the hosts",
       .group = kHosts,
       .default_text = "one is made"},
      {.name = "key-pair", .kind = kValue, .value = "NAME", .help = "for SSH to the hosts", .group = kHosts},
      {.name = "efs", .kind = kValue, .value = "fs-ID", .help = "a file system, mounted at /mnt/efs1", .group = kHosts},
      {.name = "ebs-volume-gb",
       .kind = kValue,
       .value = "N",
       .help = "their disks",
       .group = kHosts,
       .default_text = "128"},
      {.name = "max-spot-price",
       .kind = kValue,
       .value = "DOLLARS",
       .help = "spot hosts, up to this price an hour",
       .group = kHosts},
      {.name = "rdzv-group", .help = "a host of its own for the rendezvous, as petctl", .group = kHosts}};
}

std::vector<Flag> joined(std::vector<std::vector<Flag>> parts) {
  std::vector<Flag> out;
  for (std::vector<Flag>& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

std::vector<Flag> named_flags(std::string_view help, std::vector<Flag> more = {}) {
  return joined(
      {{name_flag(help), specs_flag("where the job's S3 bucket and prefix are named")}, more, account_flags()});
}

constexpr Positional kScript = {
    .name = "SCRIPT | FOLDER SCRIPT | s3://... [SCRIPT] [-- args...]",
    .help = "a script, a folder and a script in it, or either in S3; then the script's arguments",
    .at_most = 64};
constexpr Positional kName = {.name = "NAME", .help = "name of the job", .at_most = 1};

}  // namespace

const Command& petctl_run_job_table() {
  static const Command table{
      .name = "petctl run-job",
      .summary = "run an elastic job on Auto Scaling groups, as torchelastic's petctl did",
      .usage = "rubato petctl run_job --size N --specs_file FILE --name NAME SCRIPT [-- args...]",
      .about =
          "Makes two Auto Scaling groups, NAME_rdzv and NAME_worker, by a specs file of torchelastic, and\n"
          "waits for the job's end; then everything is removed. ^C leaves the job running. Repeat a command\n"
          "that was killed: it goes on where it ended.",
      .positional = kScript,
      .flags = joined({{specs_flag("torchelastic's specs file (JSON)")}, job_flags(), end_flags(), account_flags()}),
      .examples = {
          {"two hosts", "rubato petctl run_job --size 2 --specs_file specs.json --name ann-job main.py"},
          {"a folder", "rubato petctl run_job -s 2 --specs_file specs.json -n job imagenet main.py -- --lr 0.1"},
          {"elastic", "rubato petctl run_job -s 2 --min_size 1 --max_size 8 --specs_file specs.json -n job main.py"}}};
  return table;
}

const Command& aws_run_job_table() {
  static const Command table{
      .name = "aws run-job",
      .summary = "run an elastic job on an Auto Scaling group of its own",
      .usage = "rubato aws run-job --size N --name NAME --instance-type TYPE --s3 ADDRESS SCRIPT [-- args...]",
      .about =
          "One group, whose first host keeps the rendezvous; a role and a security group are made where none\n"
          "is named. Waits for the job's end; then everything is removed. ^C leaves the job running. A specs\n"
          "file of torchelastic gives what the flags do not.",
      .positional = kScript,
      .flags = joined({{specs_flag("torchelastic's specs file; its worker section counts")},
                       job_flags(),
                       host_flags(),
                       end_flags(),
                       account_flags()}),
      .examples = {
          {"four hosts", "rubato aws run-job -s 4 -n job --instance-type g5.xlarge --s3 s3://my-data/jobs train.py"},
          {"elastic, spot",
           "rubato aws run-job -s 4 --max-size 8 -n job --specs-file specs.json --max-spot-price 0.6 train.py"}}};
  return table;
}

const Command& petctl_kill_job_table() {
  static const Command table{.name = "petctl kill-job",
                             .summary = "end a job of petctl, and remove all that was made for it",
                             .usage = "rubato petctl kill_job NAME",
                             .about = "Its logs in S3 stay. May be repeated.",
                             .positional = kName,
                             .flags = named_flags("name of the job"),
                             .examples = {{"as the guide writes it", "rubato petctl kill_job --name ann-job"}}};
  return table;
}

const Command& aws_kill_job_table() {
  static const Command table{.name = "aws kill-job",
                             .summary = "end a job, and remove all that was made for it",
                             .usage = "rubato aws kill-job NAME",
                             .about = "Its logs in S3 stay. May be repeated.",
                             .positional = kName,
                             .flags = named_flags("name of the job"),
                             .examples = {{"end it", "rubato aws kill-job ann-job"}}};
  return table;
}

const Command& petctl_list_hosts_table() {
  static const Command table{.name = "petctl list-hosts",
                             .summary = "list the hosts of a job",
                             .usage = "rubato petctl list_hosts NAME [--json]",
                             .positional = kName,
                             .flags = named_flags("name of the job", {json_flag()}),
                             .examples = {{"where are they?", "rubato petctl list_hosts ann-job"}}};
  return table;
}

const Command& petctl_upload_table() {
  static const Command table{
      .name = "petctl upload",
      .summary = "upload a script, or a folder as an archive, to S3",
      .usage = "rubato petctl upload SCRIPT|FOLDER s3://BUCKET/KEY",
      .positional = {.name = "SCRIPT s3://BUCKET/KEY", .help = "what, and where to", .at_most = 2},
      .flags = account_flags(),
      .examples = {{"a script", "rubato petctl upload main.py s3://my-data/scripts/"},
                   {"a folder", "rubato petctl upload imagenet s3://my-data/scripts/imagenet.tar.zst"}}};
  return table;
}

const Command& aws_status_table() {
  static const Command table{.name = "aws status",
                             .summary = "show how a job on Auto Scaling groups is, and its hosts",
                             .usage = "rubato aws status NAME [--json]",
                             .about =
                                 "Hosts report to S3 where their role may write there; else EC2 tells what it knows.\n"
                                 "Exit code 1: the job has failed.",
                             .positional = kName,
                             .flags = named_flags("name of the job", {json_flag()}),
                             .examples = {{"how is it?", "rubato aws status ann-job"}}};
  return table;
}

const Command& aws_logs_table() {
  static const Command table{
      .name = "aws logs",
      .summary = "print the logs of a job's hosts",
      .usage = "rubato aws logs NAME [--host INSTANCE]",
      .about = "From S3 where the hosts' role may write there, else from their consoles.",
      .positional = kName,
      .flags = named_flags(
          "name of the job",
          {{.name = "host", .kind = kValue, .value = "INSTANCE", .help = "of this host only", .group = kJob}}),
      .examples = {{"all hosts", "rubato aws logs ann-job"}}};
  return table;
}

const Command& aws_resize_table() {
  static const Command table{.name = "aws resize",
                             .summary = "change how many hosts a job has",
                             .usage = "rubato aws resize NAME N",
                             .about = "Between the --min_size and --max_size that the job was started with.",
                             .positional = {.name = "NAME N", .help = "the job, and how many hosts", .at_most = 2},
                             .flags = account_flags(),
                             .examples = {{"more", "rubato aws resize ann-job 8"}}};
  return table;
}

const Command& aws_host_table() {
  static const Command table{.name = "aws-host",
                             .summary = "do the part of one host of a job",
                             .usage = "rubato aws-host ORDER.json",
                             .positional = {.name = "ORDER.json", .help = "what its user data says", .at_most = 1},
                             .hidden = true};
  return table;
}

const Command& rendezvous_table() {
  static const Command table{
      .name = "rendezvous",
      .summary = "host the rendezvous of a job, and none of its workers",
      .usage = "rubato rendezvous --nnodes MIN:MAX --rdzv-endpoint HOST[:PORT] --rdzv-id NAME",
      .flags = {{.name = "nnodes", .kind = kValue, .value = "N|MIN:MAX", .help = "as in rubato run"},
                {.name = "rdzv-endpoint", .kind = kValue, .value = "HOST[:PORT]", .help = "of this machine"},
                {.name = "join-timeout", .kind = kValue, .value = "SECONDS", .help = "too few for so long: failed"},
                {.name = "rdzv-id", .kind = kValue, .value = "NAME", .help = "as in rubato run"},
                {.name = "rdzv-key-file", .kind = kValue, .value = "FILE", .help = "as in rubato run"},
                {.name = "max-restarts", .kind = kValue, .value = "N", .help = "as in rubato run"}},
      .hidden = true};
  return table;
}

std::vector<std::string> petctl_argv(std::vector<std::string> args) {
  if (args.size() < 3 || args[0] != "petctl") return args;
  size_t verb = 1;
  while (verb < args.size() && args[verb].starts_with("--")) {
    const bool is_switch = args[verb] == "--help" || args[verb] == "--verbose";
    const bool has_value = args[verb].find('=') == std::string::npos && !is_switch;
    verb += has_value ? 2 : 1;
  }
  if (verb > 1 && verb < args.size()) {
    std::rotate(args.begin() + 1, args.begin() + static_cast<long>(verb), args.begin() + static_cast<long>(verb) + 1);
  }
  return args;
}

bool takes_script(const Command& command) {
  return &command == &petctl_run_job_table() || &command == &aws_run_job_table();
}

ParsedCommand parse_with_arguments(const Command& command, const std::vector<std::string>& args,
                                   const Environment& env) {
  const auto separator = std::ranges::find(args, "--");
  const std::vector<std::string> own(args.begin(), separator);
  ParsedCommand out = parse_command(command, own, env);
  if (separator != args.end()) {
    Given given;
    given.origin = "--";
    given.values.assign(separator + 1, args.end());
    out.given["arguments"] = std::move(given);
  }
  return out;
}

}  // namespace rubato::cli
