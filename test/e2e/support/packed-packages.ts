/** For `node --import`: a program of the tests loads packages of payments packed, as the host does. */
import { usePackedPackages } from '../../../host/shared/packed-packages.ts';

usePackedPackages();
