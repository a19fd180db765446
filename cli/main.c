/* The entry of the command. All of its work is in the library of this folder, so that tests can
 * reach it. */
#include "cli/cli.h"
#include "exec/launch/launch.h"

int main(int argc, char **argv)
{
    launch_supervise();
    return cli_main(argc, argv);
}
