/* driver.c - libcuda.so.1 of a machine with a driver: it is looked for by name, and not asked for anything.
 */
int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return 0;
}
