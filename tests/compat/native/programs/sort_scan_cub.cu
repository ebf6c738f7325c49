// CUB and Thrust: sort, scan, reduce, select, histogram
#include "check.h"
#include <algorithm>
#include <cub/cub.cuh>
#include <numeric>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <vector>

struct Square { __host__ __device__ int operator()(int x) const { return x * x; } };

int main()
{
    const int n = 3000;
    std::vector<int> a(n);
    for (int i = 0; i < n; i++) a[i] = (i * 7919) % 10007 - 5000;
    std::vector<int> sorted = a;
    std::sort(sorted.begin(), sorted.end());

    thrust::device_vector<int> d(a.begin(), a.end()), out(n);
    CHECK(thrust::reduce(d.begin(), d.end()) == std::accumulate(a.begin(), a.end(), 0));
    thrust::transform(d.begin(), d.end(), out.begin(), Square());
    CHECK(out[17] == a[17] * a[17]);

    size_t bytes = 0;
    CUDA(cub::DeviceScan::ExclusiveSum(nullptr, bytes, d.data().get(), out.data().get(), n));
    thrust::device_vector<char> room(bytes);
    CUDA(cub::DeviceScan::ExclusiveSum(room.data().get(), bytes, d.data().get(), out.data().get(), n));
    std::vector<int> scanned(n), want(n);
    CUDA(cudaMemcpy(scanned.data(), out.data().get(), n * sizeof(int), cudaMemcpyDeviceToHost));
    std::exclusive_scan(a.begin(), a.end(), want.begin(), 0);
    CHECK(scanned == want);

    bytes = 0;
    CUDA(cub::DeviceRadixSort::SortKeys(nullptr, bytes, d.data().get(), out.data().get(), n));
    room.resize(bytes);
    CUDA(cub::DeviceRadixSort::SortKeys(room.data().get(), bytes, d.data().get(), out.data().get(), n));
    CUDA(cudaMemcpy(scanned.data(), out.data().get(), n * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(scanned == sorted);

    thrust::sort(d.begin(), d.end(), thrust::greater<int>());
    std::vector<int> falling(n);
    thrust::copy(d.begin(), d.end(), falling.begin());
    std::reverse(sorted.begin(), sorted.end());
    CHECK(falling == sorted);
    puts("ok");
}
