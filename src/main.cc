#include "cli/cli.h"

int main(int argc, char** argv) { return rubato::cli::main(argc, argv); }
