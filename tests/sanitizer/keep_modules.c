/* Part of the command in the sanitizers' build only. Libraries stay loaded to the end. So the leak
 * report can name the MPI plugin of an allocation, and tests/support/lsan.supp can separate its
 * allocations from ours. */
int dlclose(void *module);
int dlclose(void *module)
{
    (void)module;
    return 0;
}
