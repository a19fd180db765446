/* The command. Everything it does is in the library of this layer, where tests can reach it. */
#include "cli/cli.h"
#include "exec/launch/launch.h"

int main(int argc, char **argv)
{
    launch_supervise();
    return cli_main(argc, argv);
}
