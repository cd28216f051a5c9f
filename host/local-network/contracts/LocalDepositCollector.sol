// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

interface AuthorizedToken {
    function receiveWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        bytes calldata signature
    ) external;
    function transfer(address to, uint256 value) external returns (bool);
}

/// Stand-in for what takes the deposits of x402's `batch-settlement` by EIP-3009, at the address that payers sign for.
contract LocalDepositCollector {
    address private constant SETTLEMENT = 0x4020074e9dF2ce1deE5A9C1b5c3f541D02a10003;

    /// @param data validity, salt and signature of an authorization whose nonce is the hash of channel and salt
    function collect(address payer, address token, uint256 amount, bytes32 channelId, bytes calldata data) external {
        require(msg.sender == SETTLEMENT, "LocalDepositCollector: caller is not the settlement");
        (uint256 validAfter, uint256 validBefore, uint256 salt, bytes memory signature) =
            abi.decode(data, (uint256, uint256, uint256, bytes));
        bytes32 nonce = keccak256(abi.encode(channelId, salt));
        AuthorizedToken(token).receiveWithAuthorization(
            payer, address(this), amount, validAfter, validBefore, nonce, signature
        );
        require(AuthorizedToken(token).transfer(SETTLEMENT, amount));
    }
}
