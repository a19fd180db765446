/* Part of the command in the sanitizers' build only: libraries stay loaded to the end, so that the
 * leak report can name the MPI plugin that an allocation came from, and tests/support/lsan.supp
 * can tell its allocations from ours. */
int dlclose(void *module);
int dlclose(void *module)
{
    (void)module;
    return 0;
}
