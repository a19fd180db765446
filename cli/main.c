/* The command. All of its work is in this layer's library, where tests can reach it. */
#include "cli/cli.h"
#include "exec/launch/launch.h"

int main(int argc, char **argv)
{
    launch_supervise();
    return cli_main(argc, argv);
}
